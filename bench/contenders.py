"""What is compared: each takes a DataFrame of events and gives one with the same events.

`identity` and `widen` look nothing up: they are what any enrichment in Python costs at the least.
What people do without Sidelook stands in `todays_ways`.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from bench.todays_ways import todays_ways, widened_schema
from bench.workload import Workload
from spark_client import Sidecar

Mode = Literal["ordered", "unordered"]
Contender = Callable[[DataFrame], DataFrame]
COLUMNS = ("name", "segment", "tier")
SIDELOOK: Mapping[str, Mode] = {"sidelook ordered": "ordered", "sidelook unordered": "unordered"}


def contenders(workload: Workload, *, endpoint: str, dsn: str) -> dict[str, Contender]:
    """By name, in the order of the table."""
    return {
        "identity": _identity,
        "widen": _widen(str(workload.dimension)),
        **{name: sidelook(endpoint, mode) for name, mode in SIDELOOK.items()},
        **todays_ways(dsn, workload.dimension),
    }


def sidelook(endpoint: str, mode: Mode) -> Contender:
    """The lookup join, in one of its modes."""
    join = Sidecar(endpoint).lookup_join(
        "customers",
        on={"customer_id": "id"},
        columns=COLUMNS,
        mode=mode,
        timeout=60.0,  # the first round is cold, on a machine that does everything at once
    )

    def add(events: DataFrame) -> DataFrame:
        return events.transform(join)

    return add


def _identity(events: DataFrame) -> DataFrame:
    def through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    return events.mapInArrow(through, events.schema)


def _widen(dimension: str) -> Contender:
    def widened(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        customers = pq.read_table(dimension, columns=["name", "segment", "tier"])
        resident = customers.combine_chunks().to_batches()[0]
        for batch in batches:
            taken = resident.take(batch.column("customer_id"))  # key n stands in row n
            names = [*batch.schema.names, *taken.schema.names]
            yield pa.record_batch([*batch.columns, *taken.columns], names=names)

    def add(events: DataFrame) -> DataFrame:
        return events.mapInArrow(widened, widened_schema(events))

    return add
