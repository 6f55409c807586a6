"""What is looked up, and in what: events with skewed or uniform keys, and a dimension table.

The same numbers give the same files on every machine; nothing is measured here.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from demo.spark_session import CORES

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
