"""Python environments of the pairs below `.cache/compat`, made by uv with the client's wheel.

Downloads packages, never an interpreter.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from zipfile import ZipFile

from tools.compat.pairs import Pair

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".cache" / "compat"
UV = ROOT / ".venv" / "lock" / "bin" / "uv"  # `make compat` installs it
INSTALL_TIMEOUT_S = 1200.0
PROBE_TIMEOUT_S = 30.0


class InterpreterMissing(Exception):
    """The machine has no such Python; the message says how to get it."""


class InstallationFailed(Exception):
    """A wheel or an environment cannot be made; the message has the reason."""


def interpreter(python: str, folders: Sequence[Path] | None = None) -> Path:
    """A working interpreter of this minor version; raises InterpreterMissing.

    Looks into `folders`: by default those on the PATH, then those of pyenv.
    """
    for folder in _folders(python) if folders is None else folders:
        found = folder / f"python{python}"
        if found.exists() and _runs(found):
            return found
    raise InterpreterMissing(
        f"no python{python} on the PATH or in pyenv; install it, as with `pyenv install {python}`"
    )


def _folders(python: str) -> list[Path]:
    on_path = [Path(name) for name in os.get_exec_path()]
    pyenv = shutil.which("pyenv")
    if pyenv is None:
        return on_path
    root = subprocess.run([pyenv, "root"], capture_output=True, text=True, check=True).stdout
    versions = Path(root.strip()) / "versions"
    return [*on_path, *sorted(versions.glob(f"{python}.*/bin"))]


def _runs(python: Path) -> bool:
    # The shims of pyenv stand on the PATH even for versions that they cannot run.
    try:
        done = subprocess.run(
            [python, "-c", ""], capture_output=True, timeout=PROBE_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def built_wheel() -> Path:
    """The client's wheel, built from the checkout; raises InstallationFailed."""
    folder = FOLDER / "wheel"
    shutil.rmtree(folder, ignore_errors=True)
    options = ["--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", str(folder)]
    _run([sys.executable, "-m", "pip", "wheel", *options, str(ROOT)])
    (wheel,) = folder.iterdir()
    return wheel


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment of a pair, with this wheel."""

    pair: Pair
    wheel: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self._folder / "bin" / "python"

    def make(self) -> None:
        """Install the pair and the wheel; a former environment stays if its requirements do.

        Raises InterpreterMissing or InstallationFailed.
        """
        found = interpreter(self.pair.python)
        stamp, wanted = self._folder / "installed", "\n".join(self._requirements())
        if not stamp.exists() or stamp.read_text() != wanted:
            shutil.rmtree(self._folder, ignore_errors=True)
            _uv("venv", "--no-project", "--python", str(found), str(self._folder))
            self._install(f"{self.wheel}[spark]", *self._pins())
            stamp.write_text(wanted)
        else:
            self._install("--offline", "--no-deps", "--reinstall", str(self.wheel))

    @property
    def _folder(self) -> Path:
        return FOLDER / self.pair.name

    def _install(self, *arguments: str) -> None:
        _uv("pip", "install", "--python", str(self.python), *arguments)

    def _pins(self) -> list[str]:
        pins = {name: text for name, text in self.pair.versions.items() if name != "python"}
        extra = {"pyspark": "[connect]"} if self.pair.has_connect else {}
        return [f"{name}{extra.get(name, '')}=={text}" for name, text in pins.items()]

    def _requirements(self) -> list[str]:
        with ZipFile(self.wheel) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
            metadata = HeaderParser().parsestr(archive.read(name).decode())
        return [*self._pins(), *(metadata.get_all("Requires-Dist") or ())]


def _uv(*arguments: str) -> None:
    if not UV.exists():
        raise InstallationFailed(f"no {UV.relative_to(ROOT)}; `make compat` installs it")
    environ = {**os.environ, "UV_PYTHON_DOWNLOADS": "never", "VIRTUAL_ENV": ""}
    _run([str(UV), "--quiet", *arguments], environ)


def _run(command: Sequence[str], environ: dict[str, str] | None = None) -> None:
    try:
        subprocess.run(
            command,
            env=environ,
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        raise InstallationFailed(f"{' '.join(command)}: {error.stderr.strip()}") from error
