"""One partition through the client, as a Spark task would do it, in a thread.

Counts what went in and came out, so that faults can be timed by it.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from spark_client.connections import Address
from spark_client.join_keys import JoinKeys
from spark_client.lookup_settings import LookupSettings
from spark_client.lookup_task import LookupJoinTask, LookupTarget
from tests.chaos.checker import Emitted
from tests.chaos.records import SCHEMA, Records

COLUMNS = pa.schema({"value": pa.int64()})
KEY_COLUMN = SCHEMA.get_field_index("key")


class Progress:
    """How many records all partitions have emitted; others wait for it."""

    def __init__(self) -> None:
        self.taken = 0
        self.emitted = 0
        self.running = 0
        self._changed = threading.Condition()

    def add(self, *, taken: int = 0, emitted: int = 0, running: int = 0) -> None:
        """Note what happened."""
        with self._changed:
            self.taken += taken
            self.emitted += emitted
            self.running += running
            self._changed.notify_all()

    def wait_for(self, emitted: int, *, timeout_s: float) -> None:
        """Wait until so many were emitted, or nobody runs any more."""
        with self._changed:
            reached = self._changed.wait_for(
                lambda: self.emitted >= emitted or not self.running, timeout_s
            )
            assert reached, f"no progress for {timeout_s:g} s: {self.emitted} of {emitted} records"

    @property
    def in_flight(self) -> int:
        """Records inside the clients."""
        return self.taken - self.emitted


@dataclass(slots=True)
class PartitionRun:
    """The run of one partition."""

    records: Records
    url: str
    dimension: str
    settings: LookupSettings
    progress: Progress
    outputs: list[pa.RecordBatch] = field(default_factory=list)
    failure: BaseException | None = None

    def run(self) -> None:
        """Take all records through; a failure is kept for who waits."""
        try:
            for output in self._task()(self._batches()):
                self.outputs.append(output)
                self.progress.add(emitted=output.num_rows)
        except BaseException as error:  # noqa: BLE001 -- raised again by `emitted`
            self.failure = error
        finally:
            self.progress.add(running=-1)

    def emitted(self) -> Iterator[Emitted]:
        """What came out, in order; raises what the run failed with."""
        if self.failure is not None:
            raise self.failure
        for output in self.outputs:
            outcomes = output.column("_lookup").field("outcome").to_pylist()
            values = output.column("value").to_pylist()
            yield from zip(output.column("number").to_pylist(), values, outcomes, strict=True)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self.records.batches():
            self.progress.add(taken=batch.num_rows)
            yield batch

    def _task(self) -> LookupJoinTask:
        target = LookupTarget(
            address=Address(self.url),
            dimension=self.dimension,
            columns=COLUMNS,
            keys=JoinKeys(("key",), ("key",)),
            key_columns=(KEY_COLUMN,),
            settings=self.settings,
        )
        return LookupJoinTask(target, prefix="", status_column="_lookup")
