"""The lookup operator over one partition in a thread, as in a Spark task; counts its output."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from lookup_core.protocol.client_channel import ChannelRequest
from spark_client.lookup_settings import KeyColumn, LookupSettings, PassSettings
from spark_client.transport.connection import Connection
from spark_client.worker.input_thread import InputThread, WakeUp
from spark_client.worker.lookup_operator import LookupOperator
from spark_client.worker.lookup_plan import LookupPlan
from spark_client.worker.output_columns import AddedPart, column_casts, joined_output
from tests.chaos.checker import Emitted
from tests.chaos.records import SCHEMA, Records
from tests.chaos.witness import KEY

COLUMNS = pa.schema({"value": pa.int64()})
KEY_COLUMN = SCHEMA.get_field_index("key")


class Progress:
    """The number of records that all partitions have emitted."""

    def __init__(self) -> None:
        self.emitted = 0
        self.running = 0
        self._changed = threading.Condition()

    def add(self, *, emitted: int = 0, running: int = 0) -> None:
        """Add to the counts."""
        with self._changed:
            self.emitted += emitted
            self.running += running
            self._changed.notify_all()

    def wait_for(self, emitted: int, *, timeout_s: float) -> None:
        """Wait until this many are emitted, or no partition runs."""
        with self._changed:
            reached = self._changed.wait_for(
                lambda: self.emitted >= emitted or not self.running, timeout_s
            )
            assert reached, f"no progress for {timeout_s:g} s: {self.emitted} of {emitted} records"


@dataclass(slots=True)
class PartitionRun:
    """The run of one partition."""

    records: Records
    origin: str
    connection: Connection
    dimension: str
    settings: PassSettings
    progress: Progress
    lookup: LookupSettings = field(default_factory=LookupSettings)
    outputs: list[pa.RecordBatch] = field(default_factory=list)
    failure: BaseException | None = None

    def run(self) -> None:
        """Process all records; `emitted` raises the failure."""
        try:
            wake_up = WakeUp()
            operator = self._operator(wake_up)
            try:
                self._drive(operator, wake_up)
            finally:
                operator.close()
        except BaseException as error:  # noqa: BLE001 -- raised again by `emitted`
            self.failure = error
        finally:
            self.progress.add(running=-1)

    def emitted(self) -> Iterator[Emitted]:
        """The output in order; raises the failure of the run."""
        if self.failure is not None:
            raise self.failure
        for output in self.outputs:
            outcomes = output.column("_lookup").field("outcome").to_pylist()
            values = output.column("value").to_pylist()
            yield from zip(output.column("number").to_pylist(), values, outcomes, strict=True)

    def _drive(self, operator: LookupOperator, wake_up: WakeUp) -> None:
        batches = InputThread(wake_up, most_rows=self.settings.capacity, most_bytes=2**20)
        with batches.reading(self.records.batches()):
            for output in operator.enriched(batches):
                self.outputs.append(output)
                self.progress.add(emitted=output.num_rows)

    def _operator(self, wake_up: WakeUp) -> LookupOperator:
        request = ChannelRequest(self.dimension, ("value",), self.origin, KEY)
        channel = self.connection.begin(request, wake=wake_up.set)
        channel.wait_until_open()
        casts = column_casts(channel.channel.columns, COLUMNS, dimension=self.dimension)
        output = joined_output(SCHEMA, [AddedPart(COLUMNS, status_column="_lookup")])
        plan = LookupPlan(self.dimension, (KeyColumn(KEY_COLUMN),), KEY, casts, self.lookup)
        return LookupOperator([plan], [channel], output, settings=self.settings, wake_up=wake_up)
