"""What is compared: each takes a DataFrame of events and gives one with the same events.

`identity` and `widen` look nothing up: they are what any enrichment in Python costs at the least.
"""

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from bench.workload import Workload
from spark_client import Sidecar

Contender = Callable[[DataFrame], DataFrame]
COLUMNS = "name string, segment string, tier int"


def contenders(workload: Workload, endpoint: str) -> dict[str, Contender]:
    """By name, in the order of the table."""
    return {
        "identity": _identity,
        "widen": _widen(str(workload.dimension)),
        "sidelook ordered": _lookup(endpoint, "ordered"),
        "sidelook unordered": _lookup(endpoint, "unordered"),
    }


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
        schema = ", ".join(
            f"{field.name} {field.dataType.simpleString()}" for field in events.schema
        )
        return events.mapInArrow(widened, f"{schema}, {COLUMNS}")

    return add


def _lookup(endpoint: str, mode: str) -> Contender:
    join = Sidecar(endpoint).lookup_join(
        "customers",
        on={"customer_id": "id"},
        columns=["name", "segment", "tier"],
        mode="ordered" if mode == "ordered" else "unordered",
        timeout=60.0,  # the first round is cold, on a machine that does everything at once
    )

    def add(events: DataFrame) -> DataFrame:
        return events.transform(join)

    return add
