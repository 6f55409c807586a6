"""A broker that is away, falls silent, dies and comes back, and what readers of it tell."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from demo.embedded_kafka.kafka_broker import KafkaBroker, kafka_broker
from demo.embedded_kafka.kafka_topics import create_topic
from lookup_core.changelog.change_decoder import RowChanges
from lookup_core.errors import BackendError, ErrorCode
from service.connectors.kafka.settings import KafkaSettings
from service.connectors.ports.source import SplitPiece
from service.engine.source_coordinator import CoordinatorSettings, SourceCoordinator
from tests.grace import GRACE_S
from tests.integration.kafka_reading import changelog, eventually, reading, send_keys
from tests.service.connectors.kafka.keys_decoder import SCHEMA

CLOSING_LIMIT_S = 1.0  # of the reader, and of the enumerator after it


@pytest.fixture(scope="module")
def broker(libraries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker that may be killed; each test leaves it running."""
    with kafka_broker(tmp_path_factory.mktemp("kafka"), libraries=libraries) as broker:
        yield broker


@pytest.fixture
async def settings(broker: KafkaBroker, topic: str) -> KafkaSettings:
    """A topic of two partitions, with a change in it."""
    await create_topic(broker.address, topic, partitions=2)
    await send_keys(broker.address, topic, [0])
    return KafkaSettings((broker.address,), topic, request_timeout_s=3.0, discovery_interval_s=0.5)


async def test_broker_may_be_down_at_the_start(broker: KafkaBroker, topic: str) -> None:
    """Nobody at the address is an error that names it; when it comes, all is well."""
    await create_topic(broker.address, topic)
    settings = KafkaSettings((broker.address,), topic)
    broker.kill()
    try:
        with pytest.raises(BackendError) as caught:
            async with reading(settings):
                raise AssertionError
    finally:
        broker.start()

    async with reading(settings) as told:
        await told.until(lambda: told.is_caught_up)

    assert caught.value.code == ErrorCode.BACKEND_UNAVAILABLE
    assert broker.address in caught.value.detail


async def test_frozen_broker_is_silence(broker: KafkaBroker, settings: KafkaSettings) -> None:
    """A broker that says nothing is told as silence, and as nothing else; then it goes on."""
    async with reading(settings) as told:
        await told.until(lambda: told.is_caught_up)
        broker.freeze()
        try:
            await told.until(lambda: told.silent_s > 2.0)
        finally:
            broker.thaw()
        await send_keys(broker.address, settings.topic, [1])
        await told.until(lambda: told.silent_s < 1.0 and told.counts[1])

    assert (told.counts, told.flushes) == (Counter([0, 1]), [])


async def test_restarted_broker_costs_nothing(broker: KafkaBroker, settings: KafkaSettings) -> None:
    """A reader goes on by itself when its broker was killed: no change is lost or told twice."""
    async with reading(settings) as told:
        await told.until(lambda: told.is_caught_up)
        broker.kill()
        try:
            await told.until(lambda: told.silent_s > 1.0)
        finally:
            broker.start()
        await send_keys(broker.address, settings.topic, range(1, 20))
        await told.until(lambda: told.silent_s < 1.0 and len(told.keys) == 20)

    assert (told.counts, told.flushes) == (Counter(range(20)), [])


@pytest.mark.parametrize("fault", ["freeze", "kill"])
async def test_long_silence_is_an_error(
    broker: KafkaBroker, settings: KafkaSettings, fault: str
) -> None:
    """A reader that hears nothing for long gives up, and closes within a second all the same."""
    loop, others = asyncio.get_running_loop(), asyncio.all_tasks()
    async with broken(broker) as break_it:
        async with reading(replace(settings, give_up_after_s=1.0)) as told:
            await told.until(lambda: told.is_caught_up)
            break_it(fault)
            with pytest.raises(BackendError) as caught:
                await told.until(lambda: False)
            ended_at = loop.time()
        closing_s = loop.time() - ended_at

    assert caught.value.code == ErrorCode.BACKEND_UNAVAILABLE
    assert closing_s < 2 * CLOSING_LIMIT_S + GRACE_S
    await eventually(lambda: asyncio.all_tasks() <= others)


@pytest.mark.parametrize("fault", ["freeze", "kill"])
async def test_opening_a_dead_broker_leaves_nothing(
    broker: KafkaBroker, settings: KafkaSettings, fault: str
) -> None:
    """Whoever cannot connect has nothing left to close."""
    others = asyncio.all_tasks()
    async with broken(broker) as break_it:
        break_it(fault)
        with pytest.raises(BackendError) as caught:
            async with changelog(settings).reader(SCHEMA):
                raise AssertionError

    assert caught.value.code == ErrorCode.BACKEND_UNAVAILABLE
    await eventually(lambda: asyncio.all_tasks() <= others)


@dataclass(slots=True)
class Taken:
    """What a coordinator has handed over."""

    keys: list[int] = field(default_factory=list)

    def take(self, piece: SplitPiece) -> None:
        """Keep which keys have changed."""
        batches = [each.keys for each in piece.changes if isinstance(each, RowChanges)]
        self.keys += [key for batch in batches for key in batch["id"].to_pylist()]


async def test_coordinator_opens_what_gave_up(broker: KafkaBroker, settings: KafkaSettings) -> None:
    """A reader that gave up is replaced; the new one goes on where the old one was."""
    taken = Taken()
    coordinator = SourceCoordinator(
        changelog(replace(settings, give_up_after_s=0.5)),
        SCHEMA,
        take=taken.take,
        settings=CoordinatorSettings("planes"),
    )
    running = asyncio.create_task(coordinator.run())
    await eventually(lambda: taken.keys)
    broker.kill()
    try:
        await eventually(lambda: not coordinator.is_caught_up)
    finally:
        broker.start()
    await send_keys(broker.address, settings.topic, range(1, 20))
    await eventually(lambda: len(taken.keys) == 20)
    running.cancel()
    await asyncio.wait([running], timeout=5.0)

    assert sorted(taken.keys) == list(range(20))
    assert running.cancelled()


@asynccontextmanager
async def broken(broker: KafkaBroker) -> AsyncIterator["Fault"]:
    """What breaks the broker; it is whole again at the end."""
    fault = Fault(broker)
    try:
        yield fault
    finally:
        fault.repair()


class Fault:
    """One fault of a broker."""

    def __init__(self, broker: KafkaBroker) -> None:
        self._broker = broker
        self._kind: str | None = None

    def __call__(self, kind: str) -> None:
        """Freeze it, or kill it."""
        self._kind = kind
        (self._broker.freeze if kind == "freeze" else self._broker.kill)()

    def repair(self) -> None:
        """Undo what was done."""
        if self._kind == "freeze":
            self._broker.thaw()
        elif self._kind == "kill":
            self._broker.start()
