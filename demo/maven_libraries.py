"""Java libraries from Maven, downloaded once into the user's cache."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@contextmanager
def download_cache(environ: Mapping[str, str]) -> Iterator[Path]:
    """Lock the cache of downloads and yield its folder.

    One lock serves all downloads, because apt-get fails while another apt-get runs.
    """
    home = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", "/tmp")) / ".cache"  # noqa: S108  for a user without a home
    folder = Path(home) / "sidelook"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "fetch.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


FETCH_TIMEOUT_S = 600
_PROJECT = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion>
<groupId>sidelook</groupId><artifactId>libraries</artifactId><version>1</version>
<packaging>pom</packaging>
<dependencies>{dependencies}</dependencies>
</project>
"""
_DEPENDENCY = (
    "<dependency><groupId>{0.group}</groupId><artifactId>{0.artifact}</artifactId>"
    "<version>{0.version}</version></dependency>"
)
_INSTALL_MAVEN = ("apt-get", "install", "--yes", "--no-install-recommends", "maven")


class LibrariesUnavailable(Exception):
    """The libraries cannot be downloaded; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Library:
    """Coordinates of a library."""

    group: str
    artifact: str
    version: str


@dataclass(frozen=True, slots=True)
class LibrarySet:
    """Libraries used together, downloaded with their dependencies."""

    folder: str  # in the cache; contains the version
    title: str  # for messages
    size_mb: int
    libraries: tuple[Library, ...]


def maven_libraries(
    wanted: LibrarySet,
    *,
    environ: Mapping[str, str] = os.environ,
    say: Callable[[str], None] = lambda _: None,
) -> Path:
    """Return the folder of the libraries, which the first call downloads under a lock.

    Reports slow steps to `say` before they start. Raises LibrariesUnavailable without Maven or
    network.
    """
    with download_cache(environ) as cache:
        folder = cache / wanted.folder
        if not folder.exists():
            maven = _maven(wanted, environ, say)
            say(f"downloads {wanted.title} with Maven ({wanted.size_mb} MB) into {folder}")
            _fetch(wanted, folder, maven, environ=environ)
    return folder


def _fetch(wanted: LibrarySet, folder: Path, maven: str, *, environ: Mapping[str, str]) -> None:
    dependencies = "".join(map(_DEPENDENCY.format, wanted.libraries))
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        project = Path(work)
        (project / "pom.xml").write_text(_PROJECT.format(dependencies=dependencies))
        fetched = project / "libraries"
        goal = ("dependency:copy-dependencies", "-DincludeScope=runtime")
        command = (maven, "-q", "-B", *goal, f"-DoutputDirectory={fetched}")
        _run(command, project, environ=environ)
        fetched.rename(folder)


def _maven(wanted: LibrarySet, environ: Mapping[str, str], say: Callable[[str], None]) -> str:
    found = shutil.which("mvn", path=environ.get("PATH"))
    if found:
        return found
    if not shutil.which("apt-get", path=environ.get("PATH")):
        raise LibrariesUnavailable(f"downloading {wanted.title} needs Maven; install it")
    say(f"installs Maven: {' '.join(_INSTALL_MAVEN)}")
    _run(("apt-get", "update"), Path("/"), environ=environ)
    _run(_INSTALL_MAVEN, Path("/"), environ=environ)
    return "mvn"


def _run(command: tuple[str, ...], folder: Path, *, environ: Mapping[str, str]) -> None:
    try:
        subprocess.run(
            command,
            cwd=folder,
            env=dict(environ),
            check=True,
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_S,
        )
    except subprocess.CalledProcessError as error:
        output = f"{error.stdout}{error.stderr}".strip()
        raise LibrariesUnavailable(f"{command[0]}: {output}") from error
    except subprocess.TimeoutExpired as error:
        raise LibrariesUnavailable(f"{command[0]}: timed out after {error.timeout} s") from error
