"""Rows that come late, from a sidecar's engine to the operator of a Spark task, over a socket."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import pyarrow as pa

from lookup_core.settings import DimensionSettings, OnMissingSettings, RetrySettings
from service.connectors.memory.backend import FakeBackend
from service.engine.dimension import Dimension
from spark_client.fake_sidecar import FakeSidecar
from spark_client.lookup_settings import FailurePolicy, LookupSettings, OutputMode
from spark_client.transport.connections import Address, Connections
from tests.service.engine import running
from tests.service.engine.late_backend import LateBackend
from tests.service.stream.streaming import Setting, streaming
from tests.spark_client.builders import Partition, batch

Row = tuple[int, str | None]  # key, name


@dataclass(slots=True)
class LateRows:
    """A partition whose records are 8, 7 and 7: Ada is there, Bert's row comes late."""

    store: LateBackend
    url: str
    rows: "asyncio.Queue[Row]" = field(default_factory=asyncio.Queue)  # as they leave

    async def enrich(self, settings: LookupSettings) -> list[Row]:
        """Run the operator to its end, beside this loop; what is left of its rows."""
        await asyncio.to_thread(self._run, settings, asyncio.get_running_loop())
        return [self.rows.get_nowait() for _ in range(self.rows.qsize())]

    def _run(self, settings: LookupSettings, loop: asyncio.AbstractEventLoop) -> None:
        connection = Connections().to(Address(self.url))
        partition = Partition(FakeSidecar({}), settings, columns=("name",), connection=connection)
        operator = partition.operator(batch(1).schema)
        for records in (batch(8, 7), batch(7)):
            self._leave(operator.take_in(records), loop)
        self._leave(operator.drain(), loop)
        operator.close()

    def _leave(self, outputs: Iterable[pa.RecordBatch], loop: asyncio.AbstractEventLoop) -> None:
        for output in outputs:
            for row in output.to_pylist():
                loop.call_soon_threadsafe(self.rows.put_nowait, (row["id"], row["name"]))


@asynccontextmanager
async def late_rows() -> AsyncIterator[LateRows]:
    """Missing keys are asked again after 10 ms, once; the store holds what is asked."""
    store = LateBackend(misses=1)
    store.hold()

    def make(settings: DimensionSettings, _: FakeBackend) -> Dimension:
        return Dimension(settings, store)

    retry = RetrySettings(max_retries=0, on_missing=OnMissingSettings(1, 0.01))
    setting = Setting(customers=running.settings(retry=retry), make=make)
    async with streaming(setting) as service:
        connector = service.session.connector
        assert isinstance(connector, aiohttp.UnixConnector)
        yield LateRows(store, f"unix://{connector.path}")


async def test_others_pass_a_parked_record() -> None:
    """Unordered, what is known leaves at once; the record whose row comes late leaves with it."""
    async with late_rows() as partition:
        rest = asyncio.create_task(partition.enrich(LookupSettings(mode=OutputMode.UNORDERED)))
        await partition.store.wait_for_fetches(1)
        partition.store.pass_one()
        first = [await partition.rows.get(), await partition.rows.get()]
        await partition.store.wait_for_fetches(2)
        partition.store.release()

        assert first == [(7, "Ada"), (7, "Ada")]
        assert await rest == [(8, "Bert")]
    assert partition.store.asked() == [[8, 7], [8]]


async def test_parked_record_keeps_its_place() -> None:
    """Ordered, nothing leaves before the record whose row comes late."""
    async with late_rows() as partition:
        rest = asyncio.create_task(partition.enrich(LookupSettings(mode=OutputMode.ORDERED)))
        await partition.store.wait_for_fetches(1)
        partition.store.pass_one()
        await partition.store.wait_for_fetches(2)

        assert partition.rows.empty()
        partition.store.release()
        assert await rest == [(8, "Bert"), (7, "Ada"), (7, "Ada")]
    assert partition.store.asked() == [[8, 7], [8]]


async def test_end_of_input_waits_no_longer_than_the_timeout() -> None:
    """A row that does not come in time is a timeout, and the task ends with all its records."""
    settings = LookupSettings(timeout_s=2.0, on_timeout=FailurePolicy.NULL)
    async with late_rows() as partition:
        rest = asyncio.create_task(partition.enrich(settings))
        await partition.store.wait_for_fetches(1)
        partition.store.pass_one()

        assert await rest == [(8, None), (7, "Ada"), (7, "Ada")]
