"""Lookups that are ahead of their dimension wait for it, and lose nothing by that."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from lookup_core.answer import Answer
from lookup_core.dimension.batcher import ChannelId
from lookup_core.dimension.flight_table import LookupId
from lookup_core.errors import ErrorCode, Overloaded
from lookup_core.freshness.feed_health import FeedState
from lookup_core.keys.typed_keys import TypedKeys
from service.connectors.memory.backend import FakeBackend
from service.connectors.memory.source import FakeSource
from service.connectors.ports.source import SplitPiece
from service.engine.dimension import Dimension
from tests.service.engine.refreshing import (
    SEES_ALL,
    changelog,
    followed,
    touched,
    until,
    until_feed_is,
)
from tests.service.engine.running import PATIENCE_S, customers, running, settings, told, typed

NOBODY = LookupId(0)
PATIENT = replace(settings(), wait_for_dimension_s=PATIENCE_S / 2)


@dataclass(slots=True)
class Caller:
    """Looks up customers as of a time, and notes what comes."""

    dimension: Dimension
    answers: list[Answer] = field(default_factory=list)
    is_done: bool = False
    lookup_id: LookupId = NOBODY

    def ask(self, *keys: int | None, at_ms: int | None, asked: TypedKeys | None = None) -> None:
        """Ask for the keys as of a time."""
        submitted = self.dimension.submit(
            asked or typed(*keys),
            columns=None,
            channel=ChannelId(1),
            timeout_s=PATIENCE_S,
            deliver=self._deliver,
            event_time_ms=at_ms,
        )
        self.lookup_id = submitted.lookup_id
        self.answers += submitted.answers
        self.is_done = submitted.is_done

    async def told(self) -> dict[int, str]:
        """All answers, when the last one has come."""
        await until(lambda: self.is_done)
        return told(self.answers)

    def _deliver(self, answer: Answer, is_last: bool) -> None:  # noqa: FBT001
        self.answers.append(answer)
        self.is_done = is_last


@asynccontextmanager
async def asked(source: FakeSource, store: FakeBackend) -> AsyncIterator[Caller]:
    """A caller of a dimension that follows its changes."""
    async with running(store, PATIENT, sources=followed(source)) as dimension:
        await until_feed_is(dimension, FeedState.LIVE)
        yield Caller(dimension)


def tell_time(source: FakeSource, watermark_ms: int) -> None:
    """No change of an earlier time follows."""
    source.tell("planes-0", SplitPiece("", 0, watermark_ms=watermark_ms))


async def test_lookup_waits_for_its_time() -> None:
    """A fact that is quicker than its dimension is not asked for before that has come as far."""
    source, store = changelog(), customers()
    async with asked(source, store) as caller:
        tell_time(source, 500)
        caller.ask(7, 9, at_ms=1_000)
        before = (caller.dimension.is_waited_for, list(store.batches))
        tell_time(source, 1_001)

        assert await caller.told() == {0: "fetched Ada", 1: "missing"}

    assert before == (True, [])


async def test_past_records_do_not_wait() -> None:
    """Nor does who names no time."""
    source = changelog()
    async with asked(source, customers()) as caller:
        tell_time(source, 2_000)
        await until(lambda: _watermark_ms(caller.dimension) == 2_000)

        caller.ask(7, at_ms=1_000)
        first = await caller.told()
        caller.ask(7, at_ms=None)

        assert first == {0: "fetched Ada"}
        assert caller.is_done


async def test_change_wakes_its_key_at_once() -> None:
    """The others of the same lookup wait on."""
    source, store = changelog(), customers()
    store.snapshot = SEES_ALL
    async with asked(source, store) as caller:
        caller.ask(9, 7, at_ms=1_000)
        source.tell("planes-0", touched(7))
        await until(lambda: bool(caller.answers))
        woken = told(caller.answers)
        tell_time(source, 1_001)

        assert (woken, await caller.told()) == (
            {1: "fetched Ada"},
            {1: "fetched Ada", 0: "missing"},
        )


async def test_keys_that_wait_are_counted() -> None:
    """They have no answer, as those that are being read."""
    source = changelog()
    async with asked(source, customers()) as caller:
        caller.ask(9, 7, at_ms=1_000)
        waiting_keys = caller.dimension.statistics().waiting_keys
        tell_time(source, 1_001)
        await caller.told()

        assert (waiting_keys, caller.dimension.statistics().waiting_keys) == (2, 0)


async def test_waiting_ends_in_time() -> None:
    """A dimension that does not get on is asked all the same."""
    short = replace(PATIENT, wait_for_dimension_s=0.01)
    async with running(customers(), short, sources=followed(changelog())) as dimension:
        caller = Caller(dimension)
        caller.ask(7, at_ms=1_000)

        assert await caller.told() == {0: "fetched Ada"}


async def test_odd_keys_keep_their_places() -> None:
    """NULLs and faulty keys wait with the others, and are told as ever."""
    source = changelog()
    keys = typed(7, None, 8, 9)
    faulty = TypedKeys(keys.columns, keys.nulls, {2: ErrorCode.TYPE})
    async with asked(source, customers()) as caller:
        caller.ask(at_ms=1_000, asked=faulty)
        tell_time(source, 1_001)

        assert await caller.told() == {
            0: "fetched Ada",
            1: "missing",
            2: "error type",
            3: "missing",
        }


async def test_leaver_is_not_asked_for() -> None:
    """Who has left while it waited costs no query; nor while its parts are on their way."""
    source, store = changelog(), customers()
    async with asked(source, store) as caller:
        caller.ask(7, at_ms=1_000)
        caller.dimension.leave(caller.lookup_id)
        store.hold()
        caller.ask(8, at_ms=1_000)
        tell_time(source, 1_001)
        await store.wait_for_fetches(1)
        caller.dimension.leave(caller.lookup_id)
        await until(lambda: store.cancelled_total == 1)

    assert ([batch.num_rows for batch in store.batches], caller.answers) == ([1], [])


async def test_too_many_may_not_wait() -> None:
    """What waits here counts as what waits for the store does."""
    full = replace(PATIENT, max_waiting_keys=2)
    async with running(customers(), full, sources=followed(changelog())) as dimension:
        caller = Caller(dimension)
        caller.ask(7, 8, at_ms=1_000)

        with pytest.raises(Overloaded):
            caller.ask(9, at_ms=1_000)


async def test_end_is_told_to_all_who_wait() -> None:
    """When what they wait for is not followed any more, nobody is left without an answer."""
    store = customers()
    async with asked(changelog(), store) as caller:
        caller.ask(7, at_ms=1_000)

    assert await asyncio.wait_for(caller.told(), PATIENCE_S) == {0: "error schema_changed"}
    assert np.array(store.batches).size == 0


def _watermark_ms(dimension: Dimension) -> int | None:
    feed = dimension.refresh_statistics().feed
    return None if feed is None else feed.watermark_ms
