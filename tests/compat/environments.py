"""Python environments of the pairs below `.cache/compat`, made by uv with the client's wheel.

Downloads packages, never an interpreter.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.compat.pairs import Pair

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
_FOLDER = ROOT / ".cache" / "compat"
_TIMEOUT_S = 1200.0


class InstallationFailed(Exception):
    """A wheel or an environment cannot be made; the message has the reason."""


class InterpreterMissing(InstallationFailed):
    """The machine has no such Python; the message says how to get it."""


def built_wheel() -> Path:
    """The client's wheel, built from the checkout; raises InstallationFailed."""
    folder = _FOLDER / "wheel"
    _uv("build", "--wheel", "--clear", "--no-build-isolation", "--out-dir", str(folder), str(ROOT))
    (wheel,) = folder.glob("*.whl")
    return wheel


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment of a pair, with this wheel."""

    pair: Pair
    wheel: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return _FOLDER / self.pair.name / "bin" / "python"

    def make(self) -> None:
        """Install the pair and the wheel; raises InterpreterMissing or InstallationFailed."""
        version, folder = self.pair.python, self.python.parents[1]
        try:
            _uv("python", "find", "--no-project", version)
        except InstallationFailed as error:
            remedy = f"install it, as with `pyenv install {version}`"
            raise InterpreterMissing(
                f"no python{version} on the PATH or in pyenv; {remedy}"
            ) from error
        _uv("venv", "--no-project", "--clear", "--python", version, str(folder))
        versions = {name: text for name, text in self.pair.versions.items() if name != "python"}
        pins = [f"{name}=={text}" for name, text in versions.items()]
        if self.pair.has_connect:
            pins.append(f"pyspark[connect]=={self.pair.pyspark}")
        _uv("pip", "install", "--python", str(self.python), f"{self.wheel}[spark]", *pins)


def _path() -> str:
    # The shims of pyenv stand on the PATH even for versions that they cannot run.
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    return os.pathsep.join([*map(str, root.glob("versions/*/bin")), os.environ["PATH"]])


def _uv(*arguments: str) -> None:
    command: Sequence[str] = [str(UV), "--quiet", *arguments]
    own = {"UV_PYTHON_DOWNLOADS": "never", "VIRTUAL_ENV": sys.prefix, "PATH": _path()}
    try:
        subprocess.run(
            command,
            env={**os.environ, **own},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        raise InstallationFailed(f"{' '.join(command)}: {error.stderr.strip()}") from error
