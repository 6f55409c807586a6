"""A root for programs of this machine in a container: its files, read-only, and some of our own.

For what stands beside the sidecar. The sidecar runs in its image.
"""

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.image.container import Container, Mount
from tests.image.dockerfile import ROOT
from tests.image.image import BASE_PATH

NOBODY = 65534
LINKS = ("bin", "sbin", "lib", "lib64")  # into /usr


@dataclass(frozen=True, slots=True)
class HostRoot:
    """A folder that is filled with mounts; one for each container, for it may write there."""

    folder: Path

    def make(self) -> None:
        """The folder, with a user for each number that runs in here."""
        self.folder.mkdir()
        for name in LINKS:
            (self.folder / name).symlink_to(f"usr/{name}")
        passwd = Path("/etc/passwd").read_text()
        self._passwd.write_text(f"{passwd}spark:x:185:185::/tmp:/bin/sh\n")

    def container(
        self, arguments: Sequence[str], *, folders: Sequence[Path] = (), writable: Sequence[Path]
    ) -> Container:
        """The command as nobody; `folders` are seen beside the machine's programs."""
        named = (Path("/etc"), Path(sys.base_prefix), Path(sys.prefix), ROOT, java_home(), *folders)
        # A link, as of an environment outside of the tree, leads on to where it leads here.
        read = dict.fromkeys([*named, *(each.resolve() for each in named)])
        outside = [each for each in read if not each.is_relative_to("/usr")]
        return Container(
            self.folder,
            arguments,
            environ=host_environ(),
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


def host_environ() -> Mapping[str, str]:
    """What the machine's programs need, and nothing else of the machine's."""
    return {
        "PATH": f"{java_home()}/bin:{BASE_PATH}",
        "HOME": "/tmp",
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def java_home() -> Path:
    """Where this machine's Java lies; raises OSError where it has none."""
    java = shutil.which("java")
    if java is None:
        raise OSError("no java on the PATH: Spark needs Java 17")
    return Path(java).resolve().parents[1]
