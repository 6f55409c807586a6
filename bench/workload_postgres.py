"""The workload's dimension as a table in PostgreSQL: the very rows of its Parquet file.

Loaded once and kept: the table carries the fingerprint of the file that it was loaded from.
"""

import hashlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
from psycopg import sql

from bench.workload import Workload
from demo.embedded_postgres import EmbeddedPostgres, embedded_postgres

TABLE = "customers"
STATEMENTS = (
    "DROP TABLE IF EXISTS customers",
    "CREATE TABLE customers (id bigint, name text, segment text, tier integer)",
)
LOAD = "COPY customers (id, name, segment, tier) FROM STDIN (FORMAT csv)"
FINGERPRINT = "SELECT obj_description(to_regclass('customers'))"


@contextmanager
def workload_postgres(folder: Path, workload: Workload) -> Iterator[str]:
    """Start the server with the table `customers`; how to reach it. Stopped at the end."""
    with embedded_postgres(folder) as server:
        dsn = _database_dsn(server, f"customers_{workload.rows}")
        load_customers(dsn, workload.dimension)
        yield dsn


def load_customers(dsn: str, dimension: Path) -> bool:
    """Make the table hold the rows of the Parquet file; false if it already did."""
    wanted = hashlib.sha256(dimension.read_bytes()).hexdigest()
    with psycopg.connect(dsn) as connection:
        if connection.execute(FINGERPRINT).fetchone() == (wanted,):
            return False
        for statement in STATEMENTS:
            connection.execute(statement)
        with connection.cursor().copy(LOAD) as copy:
            copy.write(_as_csv(dimension))
        connection.execute("ALTER TABLE customers ADD PRIMARY KEY (id)")
        comment = sql.SQL("COMMENT ON TABLE customers IS {}").format(sql.Literal(wanted))
        connection.execute(comment)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("VACUUM (ANALYZE) customers")  # so that no query has to tidy up first
    return True


def _database_dsn(server: EmbeddedPostgres, name: str) -> str:
    with psycopg.connect(server.get_uri(), autocommit=True) as admin:
        known = admin.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone()
        if known is None:
            admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return server.get_uri(name)


def _as_csv(dimension: Path) -> bytes:
    sink = io.BytesIO()
    options = arrow_csv.WriteOptions(include_header=False)
    columns = ["id", "name", "segment", "tier"]
    arrow_csv.write_csv(pq.read_table(dimension, columns=columns), sink, options)
    return sink.getvalue()
