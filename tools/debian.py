"""Programs of Debian packages, unpacked into the user's cache without installing them.

No package script runs, no service starts, and the apt sources of the machine stay unchanged.
"""

import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from demo.maven_libraries import download_cache

DOWNLOAD_TIMEOUT_S = 300
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_FIELDS = ("$(CREATED_BY)", "$(RELEASE)", "$(COMPONENT)", "$(REPO_URI)")
_CONFIGURATION = """Dir::Etc::sourcelist "{folder}/sources.list";
Dir::Etc::sourceparts "{folder}/no-others";
Dir::State::lists "{folder}/lists";
Dir::Cache "{folder}/cache";
Acquire::Languages "none";
"""


class ToolUnavailable(Exception):
    """The program cannot be installed; the message has the reason."""


def debian_tool(
    package: str,
    program: str,
    *,
    suite: str | None = None,
) -> Path:
    """Return the path of `program`: the one on PATH, else the one of `package` in the cache.

    Without `suite` the package is of the machine's own Debian release. Raises ToolUnavailable
    without apt-get or a network.
    """
    installed = shutil.which(program)
    if installed:
        return Path(installed)
    unpacked = debian_package(package, suite=suite)
    for folder in ("bin", "sbin"):
        tool = unpacked / "usr" / folder / program
        if tool.exists():
            return tool
    raise ToolUnavailable(f"the Debian package {package} does not contain {program}")


def debian_package(package: str, *, suite: str | None = None) -> Path:
    """Return the folder with the unpacked package; raises ToolUnavailable as `debian_tool` does."""
    with download_cache(os.environ) as cache:
        unpacked = cache / "debian" / (f"{package}-{suite}" if suite else package)
        unpacked.parent.mkdir(exist_ok=True)
        if not unpacked.exists():
            _fetch(package, unpacked, suite)
    return unpacked


def run_tool(
    command: list[str],
    folder: Path,
    *,
    environ: Mapping[str, str],
    timeout_s: float = DOWNLOAD_TIMEOUT_S,
) -> str:
    """Run apt-get or dpkg and return its output; raises ToolUnavailable with its error."""
    try:
        return subprocess.run(
            command,
            cwd=folder,
            env=dict(environ),
            check=True,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        ).stdout
    except subprocess.CalledProcessError as error:
        raise ToolUnavailable(f"{' '.join(command)}: {error.stderr.strip()}") from error
    except subprocess.TimeoutExpired as error:
        raise ToolUnavailable(f"{' '.join(command)}: timed out after {error.timeout} s") from error


def _fetch(package: str, unpacked: Path, suite: str | None) -> None:
    if not shutil.which("apt-get"):
        raise ToolUnavailable(f"the Debian package {package} cannot be downloaded without apt-get")
    with tempfile.TemporaryDirectory(dir=unpacked.parent) as work:
        folder = Path(work)
        environ = os.environ if suite is None else _environ_of_suite(suite, folder / "apt")
        archive = _download(package, folder, environ=environ)
        run_tool(["dpkg", "-x", archive.name, "unpacked"], folder, environ=environ)
        (folder / "unpacked").rename(unpacked)


def _download(package: str, folder: Path, *, environ: Mapping[str, str]) -> Path:
    try:
        run_tool(["apt-get", "download", package], folder, environ=environ)
    except ToolUnavailable:
        # A new machine has no package lists.
        run_tool(["apt-get", "update"], folder, environ=environ)
        run_tool(["apt-get", "download", package], folder, environ=environ)
    (archive,) = folder.glob("*.deb")
    return archive


def _environ_of_suite(suite: str, folder: Path) -> Mapping[str, str]:
    """Variables with which apt-get reads only this suite, with its lists in `folder`."""
    for part in ("no-others", "lists/partial", "cache/archives/partial"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    command = ["apt-get", "indextargets", "--format", " ".join(_FIELDS)]
    targets = map(str.split, run_tool(command, folder, environ=os.environ).splitlines())
    own = ["Packages", platform.freedesktop_os_release()["VERSION_CODENAME"], "main"]
    mirror = next((fields[3] for fields in targets if fields[:3] == own), None)
    if mirror is None:
        raise ToolUnavailable(f"apt-get has no source of {own[1]} main; add one")
    source = f"deb [signed-by={KEYRING}] {mirror} {suite} main\n"
    (folder / "sources.list").write_text(source)
    (folder / "apt.conf").write_text(_CONFIGURATION.format(folder=folder))
    return {**os.environ, "APT_CONFIG": str(folder / "apt.conf")}
