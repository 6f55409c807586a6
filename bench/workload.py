"""Workload: events with Zipf or uniform keys, and their dimension in Parquet and PostgreSQL."""

import hashlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import psycopg
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
from psycopg import sql

from demo.postgres import EmbeddedPostgres, embedded_postgres
from demo.stream import CORES

SEED = 20_130_101
ZIPF_EXPONENT = 1.2
SEGMENTS = ("consumer", "corporate", "public", "reseller")
KEYS = ("zipf", "uniform")

_GROUP_ROWS = 250_000


@dataclass(frozen=True, slots=True)
class Workload:
    """Events of each kind of key, over one dimension, as Parquet files below `folder`."""

    folder: Path
    events: int
    rows: int

    @property
    def dimension(self) -> Path:
        """The file of the dimension `customers`."""
        return self.folder / f"customers-{self.rows}.parquet"

    def events_of(self, keys: str) -> Path:
        """The file of the events with keys of one kind."""
        return self.folder / f"events-{keys}-{self.events}-{self.rows}.parquet"

    def first_events_of(self, keys: str, count: int) -> Path:
        """The file of the first so many of them, for those who would need hours for all."""
        path = self.folder / f"events-{keys}-{self.events}-{self.rows}-first-{count}.parquet"
        if not path.exists():
            _write(path, pq.read_table(self.events_of(keys)).slice(0, count))
        return path

    def distinct_events(self) -> Path:
        """The file of events that ask for each row of the dimension once, in random order."""
        path = self.folder / f"events-distinct-{self.rows}.parquet"
        _write(path, _events(np.random.default_rng(SEED).permutation(self.rows)))
        return path

    def write(self) -> None:
        """Write what is not there yet."""
        self.folder.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(SEED)
        _write(self.dimension, customers(self.rows, random))
        _write(self.events_of("zipf"), _events(_zipf_keys(self.events, self.rows, random)))
        uniform = random.integers(0, self.rows, self.events)
        _write(self.events_of("uniform"), _events(uniform))


def _write(path: Path, table: pa.Table) -> None:
    if not path.exists():
        rows = min(_GROUP_ROWS, -(-table.num_rows // CORES))  # Spark parts a file by row groups
        pq.write_table(table, path, row_group_size=rows)


def customers(rows: int, random: np.random.Generator) -> pa.Table:
    """The rows of the dimension, in the order of their ids."""
    return pa.table(
        {
            "id": np.arange(rows),
            "name": [f"customer {number}" for number in range(rows)],
            "segment": np.array(SEGMENTS)[random.integers(0, len(SEGMENTS), rows)],
            "tier": random.integers(0, 10, rows).astype(np.int32),
        }
    )


def _zipf_keys(count: int, rows: int, random: np.random.Generator) -> npt.NDArray[np.int64]:
    ranks = np.zeros(0, np.int64)
    while len(ranks) < count:
        drawn = random.zipf(ZIPF_EXPONENT, count)
        ranks = np.concatenate((ranks, drawn[drawn <= rows]))
    return random.permutation(rows)[ranks[:count] - 1]


def _events(keys: npt.NDArray[np.int64]) -> pa.Table:
    amounts = np.round(np.arange(len(keys)) % 9973 / 7, 2)
    return pa.table({"event": np.arange(len(keys)), "customer_id": keys, "amount": amounts})


# Values are put in by the client: a table cannot be made from bound parameters.
CUSTOMER_STATEMENTS = (
    "DROP TABLE IF EXISTS customers",
    """CREATE TABLE customers AS SELECT id::bigint AS id, 'customer ' || id AS name,
        'segment ' || id %% 4 AS segment FROM generate_series(0, %(rows)s - 1) AS id""",
    "ALTER TABLE customers ADD PRIMARY KEY (id)",
    "ANALYZE customers",
)


@contextmanager
def customers_postgres(folder: Path, *, rows: int) -> Iterator[str]:
    """Start the server with so many rows, ids from 0; how to reach it. Stopped at the end."""
    with embedded_postgres(folder) as server:
        dsn = server.get_uri()
        with psycopg.connect(dsn, autocommit=True, cursor_factory=psycopg.ClientCursor) as admin:
            for statement in CUSTOMER_STATEMENTS:
                admin.execute(statement.encode(), {"rows": rows})
        yield dsn


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
