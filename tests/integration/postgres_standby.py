"""A standby of the tests' PostgreSQL: a copy that follows it, and lets nobody write.

It follows as soon as it can; how far it lags is not for tests to rely on.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.postgres_server import PostgresServer


@contextmanager
def running_standby(primary: PostgresServer) -> Iterator[str]:
    """The folder of the socket that it listens on; all that the primary has now is in it."""
    folder = Path(tempfile.mkdtemp(prefix="sidelook-standby-"))  # short: sockets have short paths
    if primary.system_user is not None:
        shutil.chown(folder, primary.system_user)
    rows = folder / "rows"
    source = ("-h", str(Path(primary.socket_path).parent), "-U", "postgres")
    try:
        primary.run("pg_basebackup", (*source, "-D", str(rows), "-R", "-c", "fast"))
        options = f'-h "" -k {folder}'
        log = str(folder / "log")
        primary.run("pg_ctl", ("-w", "-D", str(rows), "-o", options, "-l", log, "start"))
        try:
            yield str(folder)
        finally:
            primary.run("pg_ctl", ("-w", "-D", str(rows), "-m", "immediate", "stop"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
