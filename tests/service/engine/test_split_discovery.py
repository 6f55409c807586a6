"""The search for splits: once, or again and again, whatever becomes of the enumerator."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.memory.source import FakeSource
from service.engine.split_reading import SplitDiscovery
from tests.service.engine.running import PATIENCE_S, SCHEMA

DOWN = BackendError(ErrorCode.BACKEND_UNAVAILABLE, "down")
FORBIDDEN = BackendError(ErrorCode.FORBIDDEN, "no right to read")


@dataclass(slots=True)
class Listener:
    """Notes what it is told."""

    source: FakeSource
    most_failures: int | None = None
    told: list[object] = field(default_factory=list)  # ids of splits, or the text of a fault

    def discovery(self) -> SplitDiscovery:
        """A discovery that tells this listener."""
        return SplitDiscovery(
            self.source,
            SCHEMA,
            most_failures=self.most_failures,
            on_splits=lambda splits: self.told.append([split.id for split in splits]),
            on_fault=lambda error: self.told.append(error.detail),
        )


@asynccontextmanager
async def discovering(discovery: SplitDiscovery) -> AsyncIterator[None]:
    """A discovery at work, until the block ends."""
    async with asyncio.TaskGroup() as tasks, asyncio.timeout(PATIENCE_S):
        task = tasks.create_task(discovery.run())
        yield
        task.cancel()


async def test_bounded_source_is_searched_once() -> None:
    """Its enumerator stays open, because readers may need what it holds, until the end."""
    source = FakeSource(is_bounded=True, discovery_interval_s=0.0)
    source.add("a")
    listener = Listener(source)

    async with discovering(discovery := listener.discovery()):
        await source.wait_for(lambda: discovery.is_done)
        assert source.diary == ["connect", "discover"]

    assert (listener.told, discovery.fault) == ([["a"]], None)
    assert source.diary == ["connect", "discover", "disconnect"]


async def test_new_splits_are_found_later() -> None:
    """As often as the enumerator wants, all splits are told."""
    source = FakeSource(is_bounded=False, discovery_interval_s=0.001)
    source.add("a")
    listener = Listener(source)

    async with discovering(listener.discovery()):
        await source.wait_for(lambda: listener.told == [["a"]])
        source.add("b")
        await source.wait_for(lambda: ["a", "b"] in listener.told)

    assert source.diary.count("connect") == 1


async def test_broken_enumerator_is_replaced() -> None:
    """After a pause a new one is opened; what was found stays found."""
    source = FakeSource(is_bounded=False, discovery_interval_s=0.001)
    listener = Listener(source)
    source.fail_next("connect", DOWN)

    async with discovering(discovery := listener.discovery()):
        await source.wait_for(lambda: listener.told[-1:] == [[]])

    assert listener.told[:2] == ["down", []]
    assert (discovery.fault, discovery.has_given_up, discovery.is_done) == (None, False, True)


async def test_limited_search_gives_up() -> None:
    """After so many failures in a row it ends by itself."""
    source = FakeSource(is_bounded=True)
    source.fail_next("discover", DOWN, DOWN)
    listener = Listener(source, most_failures=2)

    async with asyncio.timeout(PATIENCE_S):
        await (discovery := listener.discovery()).run()

    assert (listener.told, discovery.fault) == (["down", "down"], DOWN)
    assert (discovery.has_given_up, discovery.is_done) == (True, False)
    assert source.diary == ["connect", "discover", "disconnect"] * 2


async def test_lasting_fault_ends_a_limited_search() -> None:
    """What will fail again in the same way is not tried again."""
    source = FakeSource(is_bounded=True)
    source.fail_next("discover", FORBIDDEN)
    listener = Listener(source, most_failures=5)

    async with asyncio.timeout(PATIENCE_S):
        await listener.discovery().run()

    assert listener.told == ["no right to read"]


def test_listener_knows_nothing_before() -> None:
    """A discovery that has not run has neither splits nor a fault."""
    discovery = Listener(FakeSource(is_bounded=True)).discovery()

    assert (discovery.is_done, discovery.has_given_up, discovery.fault) == (False, False, None)
