"""Java libraries from Maven, fetched once into the user's cache."""

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
    """The folder, and a lock on it: whoever comes second finds what the first one fetched.

    One lock for all that is kept there: apt-get fails where another one updates its lists.
    """
    home = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", "/tmp")) / ".cache"  # noqa: S108  # of a user without a home
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
_INSTALL_MAVEN = ("apt-get", "install", "--yes", "--no-install-recommends", "maven")


class LibrariesUnavailable(Exception):
    """The libraries cannot be had on this machine; the text says why."""


@dataclass(frozen=True, slots=True)
class Library:
    """What Maven knows a library by."""

    group: str
    artifact: str
    version: str

    @property
    def dependency(self) -> str:
        """As it stands in a project."""
        return (
            f"<dependency><groupId>{self.group}</groupId><artifactId>{self.artifact}</artifactId>"
            f"<version>{self.version}</version></dependency>"
        )


@dataclass(frozen=True, slots=True)
class LibrarySet:
    """Libraries that are used together, with all that they need."""

    folder: str  # in the cache; another version is another folder
    title: str  # for people
    size_mb: int
    libraries: tuple[Library, ...]


def maven_libraries(
    wanted: LibrarySet,
    *,
    environ: Mapping[str, str] = os.environ,
    say: Callable[[str], None] = lambda _: None,
) -> Path:
    """The folder of the libraries; fetched at the first call, under a lock.

    What is installed or fetched is told to `say` before, as it takes a while. Raises
    LibrariesUnavailable where there is no Maven or no network.
    """
    with download_cache(environ) as cache:
        folder = cache / wanted.folder
        if not folder.exists():
            maven = _maven(wanted, environ, say)
            say(f"fetches {wanted.title} through Maven ({wanted.size_mb} MB) into {folder}")
            _fetch(wanted, folder, maven, environ=environ)
    return folder


def _fetch(wanted: LibrarySet, folder: Path, maven: str, *, environ: Mapping[str, str]) -> None:
    dependencies = "".join(library.dependency for library in wanted.libraries)
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
        raise LibrariesUnavailable(f"no Maven to fetch {wanted.title} with; install it")
    say(f"installs Maven: {' '.join(_INSTALL_MAVEN)}")
    _run(("apt-get", "update"), Path("/"), environ=environ)
    _run(_INSTALL_MAVEN, Path("/"), environ=environ)  # says so where it may not
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
        said = f"{error.stdout}{error.stderr}".strip()
        raise LibrariesUnavailable(f"{command[0]}: {said}") from error
    except subprocess.TimeoutExpired as error:
        raise LibrariesUnavailable(f"{command[0]}: nothing for {error.timeout} s") from error
