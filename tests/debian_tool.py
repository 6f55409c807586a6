"""A program of a Debian package for a test, unpacked into the user's cache.

Nothing is installed: no package scripts run, no service starts, the system stays as it is.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from demo.maven_libraries import download_cache
from tests.debian_suite import MirrorUnknown, environ_of_suite

DOWNLOAD_TIMEOUT_S = 300


class ToolUnavailable(Exception):
    """The program cannot be had here; the text says why."""


def debian_tool(
    package: str,
    program: str,
    *,
    suite: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Path:
    """The path of `program`: the machine's own, else the one of `package` in the cache.

    The package is of the machine's suite of Debian, if no other one is named. Raises
    ToolUnavailable where there is neither apt-get nor a network.
    """
    installed = shutil.which(program, path=environ.get("PATH"))
    if installed:
        return Path(installed)
    unpacked = debian_package(package, suite=suite, environ=environ)
    for folder in ("bin", "sbin"):
        tool = unpacked / "usr" / folder / program
        if tool.exists():
            return tool
    raise ToolUnavailable(f"the Debian package {package} holds no {program}")


def debian_package(
    package: str, *, suite: str | None = None, environ: Mapping[str, str] = os.environ
) -> Path:
    """The folder with all that the package holds; raises ToolUnavailable as `debian_tool` does."""
    with download_cache(environ) as cache:
        unpacked = cache / "debian" / (f"{package}-{suite}" if suite else package)
        unpacked.parent.mkdir(exist_ok=True)
        if not unpacked.exists():
            _fetch(package, unpacked, suite=suite, environ=environ)
    return unpacked


def _fetch(package: str, unpacked: Path, *, suite: str | None, environ: Mapping[str, str]) -> None:
    for needed in ("apt-get", "dpkg"):
        if not shutil.which(needed, path=environ.get("PATH")):
            raise ToolUnavailable(f"no {needed} to fetch the Debian package {package} with")
    with tempfile.TemporaryDirectory(dir=unpacked.parent) as work:
        folder = Path(work)
        archive = _download(package, folder, environ=_environ_of(suite, folder, environ))
        run_tool(["dpkg", "-x", archive.name, "unpacked"], folder, environ=environ)
        (folder / "unpacked").rename(unpacked)


def _environ_of(suite: str | None, folder: Path, environ: Mapping[str, str]) -> Mapping[str, str]:
    if suite is None:
        return environ
    try:
        return environ_of_suite(suite, folder / "apt", environ=environ)
    except (MirrorUnknown, subprocess.CalledProcessError) as error:
        raise ToolUnavailable(f"no packages of Debian {suite}: {error}") from error


def _download(package: str, folder: Path, *, environ: Mapping[str, str]) -> Path:
    try:
        run_tool(["apt-get", "download", package], folder, environ=environ)
    except ToolUnavailable:
        # A fresh machine has no package lists yet.
        run_tool(["apt-get", "update"], folder, environ=environ)
        run_tool(["apt-get", "download", package], folder, environ=environ)
    (archive,) = folder.glob("*.deb")
    return archive


def run_tool(
    command: list[str],
    folder: Path,
    *,
    environ: Mapping[str, str],
    timeout_s: float = DOWNLOAD_TIMEOUT_S,
) -> None:
    """Run a program of Debian's; raises ToolUnavailable with what it said when it fails."""
    try:
        subprocess.run(
            command,
            cwd=folder,
            env=dict(environ),
            check=True,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
    except subprocess.CalledProcessError as error:
        raise ToolUnavailable(f"{' '.join(command)}: {error.stderr.strip()}") from error
    except subprocess.TimeoutExpired as error:
        raise ToolUnavailable(f"{' '.join(command)}: nothing for {error.timeout} s") from error
