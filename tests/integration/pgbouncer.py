"""A PgBouncer process in transaction mode, with fewer server sessions than clients."""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from tools.debian import debian_package, debian_tool
from tools.processes.postgres_server import Database
from tools.processes.sidecar_process import free_port
from tools.processes.until import until

SERVER_CONNECTIONS = 2
_LIBRARIES = ("libc-ares2", "libevent-2.1-7")  # rarely installed
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
server_round_robin = 1
ignore_startup_parameters = {ignored}
{user}
"""


@dataclass(frozen=True, slots=True)
class PgBouncer:
    """The address of a running PgBouncer."""

    port: int
    database: str

    @property
    def dsn(self) -> str:
        """The DSN of the database through the pooler."""
        return self._dsn(self.database)

    def use_next_session(self) -> None:
        """Run a statement in the session of the server that is next in turn."""
        with psycopg.connect(self.dsn, autocommit=True) as client:
            client.execute("SELECT 1")

    def shown(self, what: str) -> list[dict[str, object]]:
        """The rows of a SHOW command of its console, such as POOLS or STATS."""
        factory = psycopg.rows.dict_row
        with psycopg.connect(
            self._dsn("pgbouncer"), autocommit=True, row_factory=factory
        ) as console:
            # The console supports the simple query protocol only.
            return psycopg.ClientCursor(console).execute(f"SHOW {what}".encode()).fetchall()

    def _dsn(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}?sslmode=disable"


@contextmanager
def pgbouncer(
    folder: Path, database: Database, *, system_user: str | None, ignored: str = ""
) -> Iterator[PgBouncer]:
    """Run PgBouncer for one database; started as root, it switches to `system_user`.

    `ignored` are startup parameters that it drops. Raises ToolUnavailable if the program cannot be
    installed.
    """
    bouncer = PgBouncer(free_port(), database.name)
    configuration = _configuration(
        folder, database, bouncer.port, user=system_user, ignored=ignored
    )
    process = start_pgbouncer(configuration, folder / "pgbouncer.log")
    try:
        _wait_for(bouncer.port, process, folder)
        yield bouncer
    finally:
        process.kill()
        process.wait()


def start_pgbouncer(configuration: Path, log: Path) -> "subprocess.Popen[bytes]":
    """Start it; raises ToolUnavailable if the program cannot be installed."""
    with log.open("ab") as output:
        return subprocess.Popen(
            [debian_tool("pgbouncer", "pgbouncer"), configuration],
            env=os.environ | {"LD_LIBRARY_PATH": _library_path()},
            stdout=output,
            stderr=output,
        )


def _configuration(
    folder: Path, database: Database, port: int, *, user: str | None, ignored: str
) -> Path:
    users, path = folder / "users.txt", folder / "pgbouncer.ini"
    users.write_text('"postgres" ""\n')
    path.write_text(
        _CONFIGURATION.format(
            database=database.name,
            socket_folder=database.socket_folder,
            port=port,
            users=users,
            connections=SERVER_CONNECTIONS,
            user=f"user = {user}" if user else "",
            ignored=ignored,
        )
    )
    return path


def _library_path() -> str:
    packages = [debian_package(package) for package in _LIBRARIES]
    return ":".join(str(path) for each in packages for path in (each / "usr" / "lib").iterdir())


def _wait_for(port: int, process: "subprocess.Popen[bytes]", folder: Path) -> None:
    def is_over() -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0 or process.poll() is not None

    until(is_over)
    assert process.poll() is None, (folder / "pgbouncer.log").read_text()
