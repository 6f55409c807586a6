"""PostgreSQL on the cluster's node, with the table that the manifests configure.

The rows are functions of their keys, so that readers can verify them.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg

from demo.embedded_postgres import EmbeddedPostgres, run_program, temporary_server
from tools.cluster.certificates import NODE_IP
from tools.cluster.machine import PODS

CUSTOMERS = 100_000
READER = "sidelook"
_TABLE = (
    "CREATE TABLE customers (id bigint PRIMARY KEY, name text, segment text, tier int)",
    f"""INSERT INTO customers SELECT i, 'name ' || i, 'segment ' || i % 7, i % 5
        FROM generate_series(0, {CUSTOMERS - 1}) AS i""",
    "ANALYZE customers",
)


@dataclass(frozen=True, slots=True)
class Database:
    """The server, and the password of the role that reads the table."""

    server: EmbeddedPostgres
    password: str

    @property
    def dsn(self) -> str:
        """Its address for pods."""
        return f"postgresql://{READER}:{self.password}@{NODE_IP}:5432/postgres"

    def execute(self, *statements: str) -> None:
        """Run statements as the administrator, each on its own."""
        address = f"postgresql://postgres@/postgres?host={self.server.pgdata}"
        with psycopg.connect(address, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def start(self) -> None:
        """Start it; returns when it accepts connections."""
        options = f"-h {NODE_IP} -k {self.server.pgdata} -F"
        self._control("-o", options, "-l", str(self.server.log), "start")

    def stop(self) -> None:
        """End all sessions and stop it."""
        self._control("-m", "fast", "stop")

    def _control(self, *arguments: str) -> None:
        server = self.server
        command = ("-w", "-D", str(server.pgdata), *arguments)
        run_program("pg_ctl", command, bin_path=server.bin_path, user=server.system_user)


@contextmanager
def running_database() -> Iterator[Database]:
    """A server with the table, which listens at the node's address."""
    with temporary_server() as server:
        server.ensure_pgdata_inited()
        with (server.pgdata / "pg_hba.conf").open("a") as access:
            access.write(f"\nhost all {READER} {PODS} scram-sha-256\n")
        database = Database(server, secrets.token_hex(16))
        database.start()
        role = f"CREATE ROLE {READER} LOGIN PASSWORD '{database.password}'"
        database.execute(*_TABLE, role, f"GRANT SELECT ON customers TO {READER}")
        try:
            yield database
        finally:
            database.stop()
