"""Workload: events with Zipf or uniform keys, and their dimension in Parquet and PostgreSQL."""

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

from demo.postgres import embedded_postgres
from demo.stream import CORES

SEED = 20_130_101
ZIPF_EXPONENT = 1.2
SEGMENTS = ("consumer", "corporate", "public", "reseller")
KEYS = ("zipf", "uniform")

_GROUP_ROWS = 250_000


@dataclass(frozen=True, slots=True)
class Workload:
    """Events with both kinds of key and their dimension, as Parquet files below `folder`."""

    folder: Path
    events: int
    rows: int

    @property
    def dimension(self) -> Path:
        """File of the dimension `customers`."""
        return self.folder / f"customers-{self.rows}.parquet"

    def events_of(self, keys: str) -> Path:
        """Return the file of the events with one kind of key."""
        return self.folder / f"events-{keys}-{self.events}-{self.rows}.parquet"

    def first_events_of(self, keys: str, count: int) -> Path:
        """Return the file of the first `count` events, for slow contenders."""
        path = self.folder / f"events-{keys}-{self.events}-{self.rows}-first-{count}.parquet"
        if not path.exists():
            _write(path, pq.read_table(self.events_of(keys)).slice(0, count))
        return path

    def distinct_events(self) -> Path:
        """Return the file of events with each key once, in random order."""
        path = self.folder / f"events-distinct-{self.rows}.parquet"
        _write(path, _events(np.random.default_rng(SEED).permutation(self.rows)))
        return path

    def write(self) -> None:
        """Write the files that do not exist."""
        self.folder.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(SEED)
        _write(self.dimension, customers(self.rows, random))
        _write(self.events_of("zipf"), _events(zipf_keys(self.events, self.rows, random)))
        uniform = random.integers(0, self.rows, self.events)
        _write(self.events_of("uniform"), _events(uniform))


def _write(path: Path, table: pa.Table) -> None:
    if not path.exists():
        rows = min(_GROUP_ROWS, -(-table.num_rows // CORES))  # Spark splits a file by row group
        pq.write_table(table, path, row_group_size=rows)


def customers(rows: int, random: np.random.Generator) -> pa.Table:
    """Return the rows of the dimension, ordered by id."""
    return pa.table(
        {
            "id": np.arange(rows),
            "name": [f"customer {number}" for number in range(rows)],
            "segment": np.array(SEGMENTS)[random.integers(0, len(SEGMENTS), rows)],
            "tier": random.integers(0, 10, rows).astype(np.int32),
        }
    )


def zipf_keys(count: int, rows: int, random: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return Zipf-distributed keys from 0 to `rows`, in random order."""
    ranks = np.zeros(0, np.int64)
    while len(ranks) < count:
        drawn = random.zipf(ZIPF_EXPONENT, count)
        ranks = np.concatenate((ranks, drawn[drawn <= rows]))
    return random.permutation(rows)[ranks[:count] - 1]


def _events(keys: npt.NDArray[np.int64]) -> pa.Table:
    amounts = np.round(np.arange(len(keys)) % 9973 / 7, 2)
    return pa.table({"event": np.arange(len(keys)), "customer_id": keys, "amount": amounts})


_GENERATE = (
    """CREATE TABLE customers AS SELECT id::bigint AS id, 'customer ' || id AS name,
        'segment ' || id %% 4 AS segment FROM generate_series(0, %(rows)s - 1) AS id""",
    "ALTER TABLE customers ADD PRIMARY KEY (id)",
    "ANALYZE customers",
)


@contextmanager
def customers_postgres(*, rows: int) -> Iterator[str]:
    """Start a server with `rows` generated customers, ids from 0, and yield its DSN."""
    with embedded_postgres() as server:
        dsn = server.get_uri()
        # CREATE TABLE AS takes no bound parameters: the client puts the values in.
        with psycopg.connect(dsn, autocommit=True, cursor_factory=psycopg.ClientCursor) as admin:
            for statement in _GENERATE:
                admin.execute(statement.encode(), {"rows": rows})
        yield dsn


_COLUMNS = ["id", "name", "segment", "tier"]
_CREATE = "CREATE TABLE customers (id bigint, name text, segment text, tier integer)"
_LOAD = f"COPY customers ({', '.join(_COLUMNS)}) FROM STDIN (FORMAT csv)"


@contextmanager
def workload_postgres(workload: Workload) -> Iterator[str]:
    """Start a server whose table `customers` is the dimension, and yield its DSN."""
    with embedded_postgres() as server:
        dsn = server.get_uri()
        _load_customers(dsn, workload.dimension)
        yield dsn


def _load_customers(dsn: str, dimension: Path) -> None:
    """Load the Parquet file into the table."""
    with psycopg.connect(dsn) as connection:
        connection.execute(_CREATE)
        with connection.cursor().copy(_LOAD) as copy:
            copy.write(_as_csv(dimension))
        connection.execute("ALTER TABLE customers ADD PRIMARY KEY (id)")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("VACUUM (ANALYZE) customers")  # else the first queries set hint bits


def _as_csv(dimension: Path) -> bytes:
    sink = io.BytesIO()
    options = arrow_csv.WriteOptions(include_header=False)
    arrow_csv.write_csv(pq.read_table(dimension, columns=_COLUMNS), sink, options)
    return sink.getvalue()
