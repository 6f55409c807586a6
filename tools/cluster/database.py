"""PostgreSQL on the cluster's node, with the table that the manifests configure.

The rows are functions of their keys, so that readers can verify them.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from demo.embedded_postgres import EmbeddedPostgres, new_server, run_program
from tools.cluster.machine import NODE_IP, PODS

CUSTOMERS = 100_000
READER = "sidelook"
_TABLE = (
    "CREATE TABLE customers (id bigint PRIMARY KEY, name text, segment text, tier int)",
    f"""INSERT INTO customers SELECT i, 'name ' || i, 'segment ' || i % 7, i % 5
        FROM generate_series(0, {CUSTOMERS - 1}) AS i""",
    "ANALYZE customers",
)


@dataclass(slots=True)
class Database:
    """The server, and the role that reads the table."""

    server: EmbeddedPostgres
    role: str = READER
    password: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def dsn(self) -> str:
        """The address for the sidecar's secret."""
        return f"postgresql://{self.role}:{self.password}@{NODE_IP}:5432/postgres"

    def execute(self, *statements: str) -> None:
        """Run statements as the administrator, each on its own."""
        with psycopg.connect(self._address, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    @contextmanager
    def locked_table(self) -> Iterator[None]:
        """All queries of the table wait during the block."""
        with psycopg.connect(self._address) as connection:
            connection.execute("LOCK TABLE customers IN ACCESS EXCLUSIVE MODE")
            yield

    def create_role(self) -> None:
        """Create the role that reads the table."""
        login = f"CREATE ROLE {self.role} LOGIN PASSWORD '{self.password}'"
        self.execute(login, f"GRANT SELECT ON customers TO {self.role}")

    def end_sessions(self) -> None:
        """End all sessions but those of the administrator."""
        sessions = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        self.execute(f"{sessions} WHERE usename <> 'postgres'")

    def start(self) -> None:
        """Start it; returns when it accepts connections."""
        options = f"-h {NODE_IP} -k {self.server.pgdata} -F"
        self._control("-o", options, "-l", str(self.server.log), "start")

    def stop(self) -> None:
        """End all sessions and stop it."""
        self._control("-m", "fast", "stop")

    @property
    def _address(self) -> str:
        return f"postgresql://postgres@/postgres?host={self.server.pgdata}"

    def _control(self, *arguments: str) -> None:
        server = self.server
        command = ("-w", "-D", str(server.pgdata), *arguments)
        run_program("pg_ctl", command, bin_path=server.bin_path, user=server.system_user)


@contextmanager
def running_database(folder: Path) -> Iterator[Database]:
    """A server with the table, which listens at the node's address."""
    folder.mkdir()
    server = new_server(folder)
    try:
        server.ensure_pgdata_inited()
        with (server.pgdata / "pg_hba.conf").open("a") as access:
            access.write(f"\nhost all all {PODS} scram-sha-256\n")
        database = Database(server)
        database.start()
        database.execute(*_TABLE)
        database.create_role()
        yield database
    finally:
        server.cleanup()
