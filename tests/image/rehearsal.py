"""The image without an engine: the build's own steps in a folder, run with the pod's rights.

The folder stands for the image's root. The base image is this interpreter, so that only what the
lock file installs and what the Dockerfile copies is there.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.image.dockerfile import ROOT, Dockerfile, DockerIgnore, Instruction

BUILD_TIMEOUT_S = 600
BASE = Path(sys.base_prefix)
BASE_PYTHON = BASE / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
SOCKET_FOLDER = "/run/sidelook"
OWN_MOUNTS = ("unshare", "--mount", "--propagation", "private")
WITHOUT_RIGHTS = (
    "setpriv --reuid=185 --regid=185 --clear-groups --no-new-privs --inh-caps=-all"
    " --bounding-set=-all"
)


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A folder that stands for the image's root."""

    folder: Path  # all users must be able to reach it
    dockerfile: Dockerfile

    @property
    def run_folder(self) -> Path:
        """The only folder that the service may write: the pod's socket volume."""
        return self.folder / "run" / "sidelook"

    @property
    def code(self) -> Path:
        """The working directory of the image."""
        return self._inside(self.dockerfile.last("WORKDIR").value)

    @property
    def environ(self) -> dict[str, str]:
        """The image's variables and nothing of this machine's."""
        variables = self.dockerfile.last("ENV").variables()
        path = variables["PATH"].replace("$PATH", os.defpath)
        if not can_take_rights_away():
            variables["SIDELOOK_LISTEN__UNIX"] = str(self.run_folder / "sidelook.sock")
        return {**variables, "PATH": f"{self.folder}{path}"}

    def build(self) -> None:
        """Carry out the instructions of the build stage; raises CalledProcessError."""
        self.run_folder.mkdir(parents=True)
        self.run_folder.chmod(0o770)
        if os.geteuid() == 0:
            os.chown(self.run_folder, 185, 185)
        work = self.folder
        for instruction in self.dockerfile.instructions:
            if instruction.stage == "build" and instruction.keyword == "WORKDIR":
                work = self._inside(instruction.value)
                work.mkdir(parents=True, exist_ok=True)
            elif instruction.stage == "build":
                self._carry_out(instruction, work)
        _forbid_writing(self.code)

    def command(self, arguments: Sequence[str] = ()) -> list[str]:
        """The entry point with these arguments (or the image's own), with the pod's rights."""
        entry_point = self.dockerfile.last("ENTRYPOINT").arguments()
        chosen = arguments or self.dockerfile.last("CMD").arguments()
        return self.with_rights([*entry_point, *chosen])

    def with_rights(self, command: Sequence[str]) -> list[str]:
        """The command as user 185 with a read-only root, where we are allowed to arrange that."""
        if not can_take_rights_away():
            return list(command)
        script = "\n".join([*self._mounts(), f"exec {WITHOUT_RIGHTS} {shlex.join(command)}"])
        return [*OWN_MOUNTS, "/bin/sh", "-ec", script]

    def _mounts(self) -> Iterable[str]:
        # The interpreter may lie in a home that user 185 cannot enter: hide the home, keep it.
        hidden = next((each for each in reversed(BASE.parents) if not _is_open(each)), None)
        if hidden:
            kept = self.folder / "base"
            yield f"mkdir -p {kept} && mount --bind {BASE} {kept}"
            yield f"mount -t tmpfs -o mode=0755 tmpfs {hidden}"
            yield f"mkdir -p {BASE} && mount --bind {kept} {BASE}"
        yield f"mount -t tmpfs -o mode=0755 tmpfs /run && mkdir {SOCKET_FOLDER}"
        yield f"mount --bind {self.run_folder} {SOCKET_FOLDER}"
        yield "mount -o remount,bind,ro /"
        yield f"cd {self.code}"

    def _inside(self, path: str) -> Path:
        return self.folder / path.lstrip("/")

    def _carry_out(self, instruction: Instruction, work: Path) -> None:
        if instruction.keyword == "COPY":
            for path in instruction.arguments()[:-1]:
                _copy(path, work)
        elif instruction.keyword == "RUN":
            command = instruction.value.replace("/opt/", f"{self.folder}/opt/")
            command = re.sub(r"\bpython -m venv", f"{BASE_PYTHON} -m venv", command)
            command = command.replace(" --no-cache-dir", "")
            shell = ["/bin/sh", "-ec", command]
            subprocess.run(shell, cwd=work, check=True, timeout=BUILD_TIMEOUT_S)


def can_take_rights_away() -> bool:
    """Whether this process may mount in a namespace of its own, and has the programs to."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "setpriv"))):
        return False
    probe = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "mount",
        "-o",
        "remount,bind,ro",
        "/",
    ]
    return subprocess.run(probe, check=False, capture_output=True).returncode == 0


def _copy(path: str, work: Path) -> None:
    ignore = DockerIgnore.parse((ROOT / ".dockerignore").read_text())
    source = ROOT / path
    files = [source] if source.is_file() else [each for each in source.rglob("*") if each.is_file()]
    for file in files:
        name = file.relative_to(ROOT)
        if ignore.lets_through(str(name)):
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, work / name)


def _forbid_writing(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode & ~0o222)


def _is_open(folder: Path) -> bool:
    return bool(folder.stat().st_mode & 0o001)
