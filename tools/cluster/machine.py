"""The cluster's machine: namespaces, mounts and control groups of its own, without a way out.

Everything in it ends with the process that entered it: `command_inside` enters, `furnish` is called
inside. The next run removes what a killed run leaves.
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tools.debian import debian_package, debian_tool
from tools.processes.until import until

DNS_IP = "10.96.0.10"
SERVICE_IP, NODE_IP = "10.96.0.1", "10.245.0.1"  # of the API server, and of the node
PODS = "10.244.0.0/24"
CONTROL_GROUPS = Path("/sys/fs/cgroup")
_END_TIMEOUT_S = 30.0
_NAME = re.compile(r"sidelook-cluster-(?P<process>\d+)-.*")
_PACKAGES = (  # with the libraries that they need
    *("runc", "libseccomp2", "containernetworking-plugins", "iptables", "conntrack"),
    *("libxtables12", "libip4tc2", "libip6tc2", "libnftnl11", "libmnl0", "libedit2", "libbsd0"),
    *("libnetfilter-conntrack3", "libnfnetlink0"),
)
_IPTABLES = tuple(
    f"{family}tables{action}" for family in ("ip", "ip6") for action in ("", "-save", "-restore")
)
# The kubelet would set them for the whole machine; it finds these instead.
_SYSCTLS = {
    "vm/overcommit_memory": "1",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxbytes": "25000000",
}


def lack(user: int, groups: Path = CONTROL_GROUPS) -> str:
    """What a machine lacks for a cluster, with the remedy; empty if it lacks nothing."""
    if user != 0:
        return "namespaces and control groups need root: run it as root"
    if not any((groups / each).exists() for each in ("cgroup.controllers", "memory/cgroup.procs")):
        return f"no control groups at {groups}: mount those of version 1 or 2 there"
    return ""


def debian_folders() -> list[Path]:
    """Debian's programs and libraries, each unpacked; raises ToolUnavailable."""
    return [*map(debian_package, _PACKAGES)]


@contextmanager
def run_folder() -> Iterator[Path]:
    """A temporary folder of a run; its name is also that of its control groups."""
    _remove_dead_runs(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=f"sidelook-cluster-{os.getpid()}-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        until(lambda: _are_removed(folder.name), within_s=_END_TIMEOUT_S)
        shutil.rmtree(folder)


def control_groups(name: str) -> list[Path]:
    """The control groups of a run, inner ones first."""
    # Version 1 has a tree for each resource, version 2 has one tree.
    outer = [
        each for pattern in (f"{name}*", f"*/{name}*") for each in CONTROL_GROUPS.glob(pattern)
    ]
    inner = (each for group in outer for each in group.rglob("*/"))
    return sorted([*outer, *inner], key=lambda group: len(group.parts), reverse=True)


def _remove_dead_runs(folder: Path) -> None:
    found = [*folder.glob("sidelook-cluster-*"), *control_groups("sidelook-cluster-")]
    matches = filter(None, (_NAME.fullmatch(each.name) for each in found))
    for match in matches:
        if Path("/proc", match["process"]).exists():
            continue
        name = match[0]
        for group in control_groups(name):
            for process in (group / "cgroup.procs").read_text().split():
                with suppress(ProcessLookupError):  # it has just ended
                    os.kill(int(process), signal.SIGKILL)
        until(lambda name=name: _are_removed(name), within_s=_END_TIMEOUT_S)  # type: ignore[misc]
        shutil.rmtree(folder / name, ignore_errors=True)  # a concurrent start may have removed it


def _are_removed(name: str) -> bool:
    try:
        for group in control_groups(name):
            group.rmdir()
    except OSError:
        return False
    return True


def command_inside(folder: Path, command: Sequence[str]) -> list[str]:
    """The command that runs a command in namespaces and control groups of its own.

    All processes end with the command, and it ends with the caller.
    """
    groups = [group / folder.name for group in _hierarchies()]
    for group in groups:
        group.mkdir()
        for name in ("cpuset.cpus", "cpuset.mems"):  # of version 1: empty at first
            if (group / name).exists() and (group.parent / name).read_text().strip():
                (group / name).write_text((group.parent / name).read_text())
    join = "".join(f"echo 0 > {group}/cgroup.procs; " for group in groups)
    return [
        *("sh", "-ec", f'{join}exec "$@"', "sh", "setpriv", "--pdeathsig", "KILL"),
        *("unshare", "--mount", "--propagation", "private", "--net", "--pid", "--ipc", "--uts"),
        *("--cgroup", "--fork", "--kill-child", "--mount-proc", *command),
    ]


def _hierarchies() -> list[Path]:
    """The mounted hierarchies of control groups: several of version 1, or the one of version 2."""
    if (CONTROL_GROUPS / "cgroup.controllers").exists():
        return [CONTROL_GROUPS]
    found = [each.parent for each in sorted(CONTROL_GROUPS.glob("*/cgroup.procs"))]
    # Next to version 1, systemd may mount one of version 2 without resources.
    return [each for each in found if not (each / "cgroup.controllers").exists()]


def furnish(folder: Path) -> None:
    """Mount and configure everything, in the namespaces; raises OSError."""
    names = [each.name for each in _hierarchies() if each != CONTROL_GROUPS]
    run("hostname", "node")
    run("mount", "-t", "sysfs", "sysfs", "/sys")
    _mount_control_groups(names)
    _mount_programs(folder)
    for target in ("/run", "/var/log"):
        run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", target)
    run("mount", "--make-rshared", "/")
    for name, text in _SYSCTLS.items():
        _replace(Path("/proc/sys", name), text, folder)
    _replace(Path("/etc/hosts"), f"127.0.0.1 localhost\n{NODE_IP} node\n", folder)
    _replace(Path("/etc/resolv.conf"), f"nameserver {DNS_IP}\n", folder)
    _configure_network()


def _mount_control_groups(names: list[str]) -> None:
    if not names:
        run("mount", "-t", "cgroup2", "cgroup2", str(CONTROL_GROUPS))
        _delegate_controllers()
        return
    run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(CONTROL_GROUPS))
    for name in names:
        (CONTROL_GROUPS / name).mkdir()
        options = "none,name=systemd" if name == "systemd" else name
        run("mount", "-t", "cgroup", "-o", options, "cgroup", str(CONTROL_GROUPS / name))


def _delegate_controllers() -> None:
    # Version 2: only a group without processes passes controllers on.
    leaf = CONTROL_GROUPS / "programs"
    leaf.mkdir()
    for process in (CONTROL_GROUPS / "cgroup.procs").read_text().split():
        (leaf / "cgroup.procs").write_text(process)
    controllers = (CONTROL_GROUPS / "cgroup.controllers").read_text().split()
    wanted = " ".join(f"+{each}" for each in controllers)
    (CONTROL_GROUPS / "cgroup.subtree_control").write_text(wanted)


def _mount_programs(folder: Path) -> None:
    links = folder / "links" / "sbin"
    links.mkdir(parents=True)
    for name in _IPTABLES:
        (links / name).symlink_to("xtables-nft-multi")
    lower = [links.parent, *(each / "usr" for each in debian_folders()), Path("/usr")]
    options = f"lowerdir={':'.join(map(str, lower))}"
    run("mount", "-t", "overlay", "-o", options, "overlay", "/usr")


def _replace(file: Path, text: str, folder: Path) -> None:
    own = folder / f"replaced-{str(file).strip('/').replace('/', '-')}"
    own.write_text(text)
    run("mount", "--bind", str(own), str(file.resolve()))


def _configure_network() -> None:
    for arguments in (
        "link set lo up",
        f"addr add {DNS_IP}/32 dev lo",
        "link add node type bridge",
        f"addr add {NODE_IP}/24 dev node",
        "link set node up",
        f"route add default via {NODE_IP} dev node",
    ):
        run(str(debian_tool("iproute2", "ip")), *arguments.split())
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def run(*command: str, environ: Mapping[str, str] | None = None) -> str:
    """Run a program to its end, and return its output; raises OSError with its error."""
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
