"""One partition through the operator, over a connection to a sidecar in memory.

What a Spark task does with its batches, without Spark.
"""

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lookup_core.protocol.client_channel import ChannelRequest
from spark_client.as_of import AsOfPlan, single_columns, version_pick
from spark_client.fake_sidecar import URL, FakeDimension, FakeSidecar
from spark_client.lookup_operator import LookupOperator, LookupPlan
from spark_client.lookup_settings import LookupSettings
from spark_client.output_columns import column_casts, joined_output
from spark_client.transport.connection import Connection, Timing
from spark_client.transport.interface import LookupChannel

CUSTOMERS = pa.table(
    {
        "id": pa.array([1, 2, 3, 4], pa.int64()),
        "name": pa.array(["Ann", None, "Ćirić", ""]),
        "tier": pa.array([1, 2, None, 4], pa.int32()),
    }
)
DIMENSIONS = {"customers": FakeDimension(CUSTOMERS, ("id",))}
NO_PAUSE = Timing(connect_timeout_s=5.0, pause=lambda _: None)


def connection_to(sidecar: FakeSidecar, timing: Timing = NO_PAUSE) -> Connection:
    """A connection of this process."""
    return Connection(sidecar.connect, url=URL, timing=timing)


def batch(*ids: int | None, name: str = "id") -> pa.RecordBatch:
    """Records with a key and a number."""
    columns = [pa.array(ids, pa.int64()), pa.array(range(len(ids)), pa.int64())]
    return pa.record_batch(columns, [name, "n"])


@dataclass(frozen=True, slots=True)
class Partition:
    """How a partition is enriched."""

    sidecar: FakeSidecar
    settings: LookupSettings = field(default_factory=LookupSettings)
    dimension: str = "customers"
    columns: tuple[str, ...] = ("name", "tier")
    keys: tuple[str, ...] = ("id",)
    status_column: str | None = None
    connection: Connection | None = None  # None: one of its own
    clock: Callable[[], float] = time.monotonic

    def operator(self, records: pa.Schema) -> LookupOperator:
        """The operator with its channel, over a connection of its own."""
        key = pa.schema([records.field(name) for name in self.keys])
        is_as_of = self.settings.as_of is not None
        request = ChannelRequest(self.dimension, self.columns, "a test", key, is_as_of)
        channel = (self.connection or connection_to(self.sidecar)).open(request)
        casts = column_casts(channel.columns, channel.columns, dimension=self.dimension)
        as_of = self._as_of(channel)
        output = joined_output(
            records,
            channel.columns if as_of is None else as_of.pick.columns,
            prefix="",
            status_column=self.status_column,
            is_inner=self.settings.is_inner,
        )
        positions = tuple(records.names.index(name) for name in self.keys)
        plan = LookupPlan(self.dimension, positions, key, casts, output, self.settings, as_of)
        return LookupOperator(plan, channel, clock=self.clock)

    def _as_of(self, channel: LookupChannel) -> AsOfPlan | None:
        if self.settings.as_of is None or channel.versions is None:
            return None
        asked = list(single_columns(channel.columns))[: len(self.columns)]
        pick = version_pick(channel.columns, pa.schema(asked), channel.versions)
        return AsOfPlan(self.settings.as_of, pick)

    def run(self, batches: Sequence[pa.RecordBatch]) -> Generator[pa.RecordBatch]:
        """All output batches; the channel is given back whatever happens."""
        operator = self.operator(batches[0].schema)
        try:
            for each in batches:
                yield from operator.take_in(each)
            yield from operator.drain()
        finally:
            operator.close()
            self.sidecar.crash()  # ends the connection's thread

    def rows(self, *batches: pa.RecordBatch) -> list[dict[str, Any]]:
        """All output rows."""
        outputs = [each for each in batches if each.num_rows]
        return [row for output in self.run(outputs) for row in output.to_pylist()]
