"""Machines of the rehearsal: network namespaces on one bridge, and roots for host programs.

The sidecar runs in its image; database, monitoring and executor run programs of this machine. The
namespaces end with the process of the rehearsal.
"""

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tools.debian import debian_tool
from tools.image.container import Container, Mount
from tools.image.image import BASE_PATH, ROOT

NOBODY = 65534
NODE = "10.244.0.1"
POD = "10.244.0.10"
DATABASE = "10.244.0.20"
MONITORING = "10.244.0.30"
MACHINES = {"pod": POD, "database": DATABASE, "monitoring": MONITORING}  # {name: address}
NAMESPACES = Path("/run/netns")
_LINKS = ("bin", "sbin", "lib", "lib64")  # into /usr


@dataclass(frozen=True, slots=True)
class HostRoot:
    """The root of one container: mounts of this machine's files, read-only."""

    folder: Path

    def make(self) -> None:
        """Create the folder, with a name for each user id."""
        self.folder.mkdir()
        for name in _LINKS:
            (self.folder / name).symlink_to(f"usr/{name}")
        passwd = Path("/etc/passwd").read_text()
        self._passwd.write_text(f"{passwd}spark:x:185:185::/tmp:/bin/sh\n")

    def container(
        self, arguments: Sequence[str], *, folders: Sequence[Path] = (), writable: Sequence[Path]
    ) -> Container:
        """A container that runs a command as `nobody`; `folders` are mounted read-only."""
        named = (
            Path("/etc"),
            Path(sys.base_prefix),
            Path(sys.prefix),
            ROOT,
            _java_home(),
            *folders,
        )
        # A virtual environment may be a link to a folder outside of the tree.
        read = dict.fromkeys([*named, *(each.resolve() for each in named)])
        outside = [each for each in read if not each.is_relative_to("/usr")]
        return Container(
            self.folder,
            arguments,
            environ=_host_environ(),
            folder=str(ROOT),
            user=NOBODY,
            group=NOBODY,
            mounts=(
                Mount("/tmp"),
                Mount("/usr", Path("/usr")),
                *(Mount(str(each), each) for each in outside),
                Mount("/etc/passwd", self._passwd),
                *(Mount(str(each), each, is_read_only=False) for each in writable),
            ),
        )

    @property
    def _passwd(self) -> Path:
        return self.folder.with_suffix(".passwd")


def _host_environ() -> Mapping[str, str]:
    return {
        "PATH": f"{_java_home()}/bin:{BASE_PATH}",
        "HOME": "/tmp",
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def _java_home() -> Path:
    java = shutil.which("java")
    if java is None:
        raise OSError("no java on the PATH: Spark needs Java 17")
    return Path(java).resolve().parents[1]


def make_network() -> None:
    """Create the bridge and the namespaces; raises OSError and CalledProcessError."""
    NAMESPACES.mkdir(exist_ok=True)
    # The names of the namespaces are visible in this mount namespace only.
    subprocess.run(["/bin/mount", "-t", "tmpfs", "tmpfs", NAMESPACES], check=True)
    _ip("link set lo up")
    _ip("link add pods type bridge")
    _ip(f"addr add {NODE}/24 dev pods")
    _ip("link set pods up")
    for name, address in MACHINES.items():
        _ip(f"netns add {name}")
        _ip(f"link add {name} type veth peer name eth0 netns {name}")
        _ip(f"link set {name} master pods up")
        _ip(f"-n {name} addr add {address}/24 dev eth0")
        _ip(f"-n {name} link set eth0 up")
        _ip(f"-n {name} link set lo up")


def remove_network() -> None:
    """Delete the namespaces and the bridge."""
    for name in MACHINES:
        _ip(f"netns delete {name}")
    _ip("link delete pods")


def joined(container: Container, machine: str) -> Container:
    """The container in the network namespace of a machine."""
    return replace(container, network=NAMESPACES / machine)


def _ip(arguments: str) -> None:
    program = debian_tool("iproute2", "ip")
    done = subprocess.run(
        [program, *arguments.split()], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise OSError(f"ip {arguments}: {done.stderr.strip()}")
