"""A real PgBouncer that pools transactions, between a backend and the server of the tests.

Not a model of how one is best configured: it has few connections, so that clients must share.
"""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from tools.debian import debian_package, debian_tool
from tools.processes.postgres_server import Database
from tools.processes.sidecar_process import free_port

SERVER_CONNECTIONS = 2
_LIBRARIES = ("libc-ares2", "libevent-2.1-7")  # that few machines have
_START_TIMEOUT_S = 60.0
_POLL_INTERVAL_S = 0.02
_CONFIGURATION = """
[databases]
{database} = host={socket_folder} dbname={database}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
admin_users = postgres
pool_mode = transaction
default_pool_size = {connections}
server_login_retry = 1
{user}
"""


@dataclass(frozen=True, slots=True)
class PgBouncer:
    """Where it listens."""

    port: int
    database: str

    @property
    def dsn(self) -> str:
        """How to reach the database through it."""
        return self._dsn(self.database)

    def shown(self, what: str) -> list[dict[str, object]]:
        """What its console shows, as SHOW POOLS or SHOW STATS."""
        factory = psycopg.rows.dict_row
        with psycopg.connect(self._dsn("pgbouncer"), autocommit=True, row_factory=factory) as asked:
            # Its console knows the simple protocol only.
            return psycopg.ClientCursor(asked).execute(f"SHOW {what}".encode()).fetchall()

    def _dsn(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}?sslmode=disable"


@contextmanager
def pgbouncer(folder: Path, database: Database, *, system_user: str | None) -> Iterator[PgBouncer]:
    """One that runs, for one database; it refuses to be root, and then becomes `system_user`.

    Raises ToolUnavailable where it cannot be had.
    """
    program = debian_tool("pgbouncer", "pgbouncer")
    bouncer = PgBouncer(free_port(), database.name)
    with (folder / "pgbouncer.log").open("wb") as log:
        process = subprocess.Popen(
            [program, _configuration(folder, database, bouncer.port, system_user=system_user)],
            env=os.environ | {"LD_LIBRARY_PATH": _library_path()},
            stdout=log,
            stderr=log,
        )
    try:
        _wait_for(bouncer.port, process, folder)
        yield bouncer
    finally:
        process.kill()
        process.wait()


def _configuration(folder: Path, database: Database, port: int, *, system_user: str | None) -> Path:
    users, path = folder / "users.txt", folder / "pgbouncer.ini"
    users.write_text('"postgres" ""\n')
    path.write_text(
        _CONFIGURATION.format(
            database=database.name,
            socket_folder=database.socket_folder,
            port=port,
            users=users,
            connections=SERVER_CONNECTIONS,
            user=f"user = {system_user}" if system_user else "",
        )
    )
    return path


def _library_path() -> str:
    packages = [debian_package(package) for package in _LIBRARIES]
    return ":".join(str(path) for each in packages for path in (each / "usr" / "lib").iterdir())


def _wait_for(port: int, process: "subprocess.Popen[bytes]", folder: Path) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
        except OSError:
            log = (folder / "pgbouncer.log").read_text()
            assert process.poll() is None, log
            assert time.monotonic() < deadline, log
            time.sleep(_POLL_INTERVAL_S)
        else:
            return
