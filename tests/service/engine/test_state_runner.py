"""One state at work: what happens to its queries when the store is doubted, changes or is away."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from lookup_core.answer import Outcome
from lookup_core.changelog.change_decoder import TableChange
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.freshness.table_snapshot import TableSnapshot
from lookup_core.protection.circuit_breaker import BreakerState
from lookup_core.settings import BatchSettings
from lookup_core.statistics import InvalidationOrigin
from service.connectors.memory.backend import FakeBackend
from service.engine.dimension import Dimension
from service.engine.observer import QueryStatus
from tests.service.engine.running import (
    PATIENCE_S,
    DiaryObserver,
    QueryEnded,
    customers,
    running,
    settings,
    told,
    typed,
)

CHANGED = BackendError(ErrorCode.SCHEMA_CHANGED, "customers: not what it was")
FORBIDDEN = BackendError(ErrorCode.FORBIDDEN, "customers: may not be read")
DOWN = BackendError(ErrorCode.BACKEND_UNAVAILABLE, "customers: down")
ONE_BY_ONE = settings(batch=BatchSettings(max_keys=1, max_in_flight=1))


async def lookup(dimension: Dimension, *keys: int) -> dict[int, str]:
    """A caller that waits for all answers."""
    return told(await dimension.lookup(typed(*keys), columns=None, timeout_s=None))


# Doubts


@pytest.mark.parametrize("error", [CHANGED, FORBIDDEN])
async def test_benign_refusal_is_tried_again_once(error: BackendError) -> None:
    """A query refused by a table that is what it was brings its rows at the second try."""
    store, diary = customers(), DiaryObserver()
    store.fail_next(1, error)
    async with running(store, observer=diary) as dimension:
        assert await lookup(dimension, 7) == {0: "fetched Ada"}
        assert dimension.statistics().retries == 0

    assert store.descriptions_total == 2
    assert diary.queries == [QueryEnded(1, QueryStatus.ERROR), QueryEnded(1, QueryStatus.OK)]


async def test_second_refusal_is_the_answer() -> None:
    """A store that describes a table and refuses to read it is not asked for ever."""
    store = customers()
    store.fail_next(2, CHANGED)
    async with running(store) as dimension:
        assert await lookup(dimension, 7) == {0: "error schema_changed"}
        assert await lookup(dimension, 7) == {0: "fetched Ada"}

    assert len(store.batches) == 3


async def test_refusal_of_a_store_gone_since_is_told() -> None:
    """Without a description there is no second try; what is cached is still served."""
    store = customers()
    async with running(store) as dimension:
        await lookup(dimension, 8)
        store.fail_next(1, CHANGED)
        store.describe_error = DOWN

        assert await lookup(dimension, 7) == {0: "error schema_changed"}
        assert await lookup(dimension, 8) == {0: "hit Bert"}


async def test_other_failures_raise_no_doubt() -> None:
    """A store that is away is not asked to describe itself."""
    store = customers()
    store.fail_next(1, DOWN)
    async with running(store) as dimension:
        assert await lookup(dimension, 7) == {0: "error backend_unavailable"}

    assert store.descriptions_total == 1


# Failover


async def test_other_store_empties_the_cache() -> None:
    """What the former store had may be lost: nothing of it is served any more."""
    store = customers()
    store.store = "10.0.0.1:5432"
    async with running(store) as dimension:
        await lookup(dimension, 7)
        store.store = "10.0.0.2:5432"
        with capture_logs() as logs:
            await lookup(dimension, 8)

        assert await lookup(dimension, 7) == {0: "fetched Ada"}
        assert dimension.statistics().invalidations[InvalidationOrigin.FAILOVER] == 1
    assert [(line["before"], line["now"], line["forgotten"]) for line in logs] == [
        ("10.0.0.1:5432", "10.0.0.2:5432", 1)
    ]


async def test_what_a_read_saw_decides_what_is_kept() -> None:
    """The store's snapshot goes to the state: a read that missed a change is answered only."""
    store = customers()
    async with running(store) as dimension:
        change = TableChange("truncated", transaction_id=103)
        assert dimension._runner is not None
        dimension._runner.state.changes.on_changes(
            [change], InvalidationOrigin.CHANGELOG, time.monotonic()
        )
        for snapshot in ("103:105:103", "104:105:"):
            store.snapshot = TableSnapshot.parse(snapshot)
            assert await lookup(dimension, 7) == {0: "fetched Ada"}

        assert await lookup(dimension, 7) == {0: "hit Ada"}
        assert dimension.statistics().fenced_keys == 1


async def test_unnamed_store_is_no_failover() -> None:
    """A store that cannot say which one it is leaves the cache as it is."""
    store = customers()
    async with running(store) as dimension:
        for key, name in ((7, "a"), (8, ""), (9, "a")):
            store.store = name
            await lookup(dimension, key)

        assert await lookup(dimension, 7, 8) == {0: "hit Ada", 1: "hit Bert"}
        assert dimension.statistics().invalidations[InvalidationOrigin.FAILOVER] == 0


async def test_store_is_remembered_beyond_unnamed_ones() -> None:
    """An answer without a name in between does not hide that another store took over."""
    store = customers()
    async with running(store) as dimension:
        for key, name in ((7, "a"), (8, ""), (9, "b")):
            store.store = name
            await lookup(dimension, key)

        assert dimension.statistics().invalidations[InvalidationOrigin.FAILOVER] == 2


async def test_flapping_store_is_one_line() -> None:
    """Stores that take turns are read right each time, and flood no log."""
    store = customers()
    async with running(store) as dimension:
        with capture_logs() as logs:
            for turn in range(10):
                store.store = "ab"[turn % 2]
                assert await lookup(dimension, 100 + turn) == {0: "missing"}

    assert [line["event"] for line in logs] == ["dimension.failover"]


# Probes


@asynccontextmanager
async def store_away(
    store: FakeBackend, error: BackendError
) -> AsyncIterator[tuple[Dimension, "asyncio.Task[dict[int, str]]"]]:
    """A dimension that has stopped to ask its store, and a caller who waits; probes fail, too."""
    store.fail_next(3, DOWN)
    store.probe_error = error
    async with running(store, ONE_BY_ONE) as dimension:
        for key in (1, 2):
            await lookup(dimension, key)
        caller = asyncio.ensure_future(lookup(dimension, 7))
        await store.wait_for_probes(2)
        yield dimension, caller


async def test_probe_finds_the_store_that_is_back() -> None:
    """While it is away only probes go there; then those who waited get their rows."""
    store = customers()
    async with store_away(store, DOWN) as (dimension, caller):
        assert (len(store.batches), caller.done()) == (3, False)
        store.probe_error = None

        assert await caller == {0: "fetched Ada"}
        assert dimension.statistics().breaker_state is BreakerState.CLOSED


async def test_probe_goes_on_without_callers() -> None:
    """The next caller after an outage finds a store that was found before."""
    store = customers()
    async with store_away(store, DOWN) as (dimension, caller):
        caller.cancel()
        store.probe_error = None
        async with asyncio.timeout(PATIENCE_S):
            while dimension.statistics().breaker_state is not BreakerState.CLOSED:  # noqa: ASYNC110  no event tells it
                await asyncio.sleep(0)

        assert await lookup(dimension, 7) == {0: "fetched Ada"}


async def test_defective_probe_is_a_failed_one() -> None:
    """Whatever an adapter raises, the dimension goes on to ask."""
    store = customers()
    defect: BackendError = ZeroDivisionError()  # type: ignore[assignment]  # that is the defect
    async with store_away(store, defect) as (_, caller):
        store.probe_error = None

        assert await caller == {0: "fetched Ada"}


async def test_sessions_that_outlive_a_promotion_flush_nothing() -> None:
    """A server that has answered before is no other one: its sessions end by and by."""
    store = customers()
    async with running(store) as dimension:
        for number, name in enumerate(["primary/1", "primary/2", "primary/1", "primary/2"]):
            store.store = name
            await dimension.lookup(typed(100 + number), columns=None, timeout_s=PATIENCE_S)
            await dimension.lookup(typed(7), columns=None, timeout_s=PATIENCE_S)

        statistics = dimension.statistics()

    # What was cached, or came, when the second name was seen first is gone; all else stays.
    assert statistics.cache.rows == 3
    assert statistics.outcomes[Outcome.HIT] == 2
