"""A dimension at work whose rows come later than its lookups."""

import asyncio

from lookup_core.answer import Answer
from lookup_core.dimension.batcher import ChannelId
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.settings import BatchSettings, DimensionSettings, OnMissingSettings, RetrySettings
from service.engine.dimension import Dimension
from service.engine.observer import QueryStatus
from tests.hand_clock import HandClock
from tests.service.engine.late_backend import LateBackend
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

DOWN = BackendError(ErrorCode.BACKEND_UNAVAILABLE, "customers: down")


def asking_again(
    max_retries: int, *, delay_s: float = 0.001, failures: int = 0
) -> DimensionSettings:
    """One query at a time; missing keys are asked again, failed queries at once."""
    on_missing = OnMissingSettings(max_retries, delay_s)
    return settings(
        batch=BatchSettings(max_in_flight=1),
        retry=RetrySettings(max_retries=failures, initial_s=0.0, on_missing=on_missing),
    )


async def lookup(
    dimension: Dimension, *keys: int, timeout_s: float | None = None
) -> dict[int, str]:
    """A caller that waits for all answers."""
    return told(await dimension.lookup(typed(*keys), columns=None, timeout_s=timeout_s))


def levels(dimension: Dimension) -> tuple[int, int, int]:
    """What waits: keys of callers, keys of the queue, queries."""
    statistics = dimension.statistics()
    return statistics.waiting_keys, statistics.queued_keys, statistics.queries_in_flight


async def test_late_row_is_found() -> None:
    """Only the key without a row is asked again, and the caller gets the row."""
    store = LateBackend(misses=2)
    async with running(store, asking_again(3)) as dimension:
        assert await lookup(dimension, 7, 8) == {0: "fetched Ada", 1: "fetched Bert"}
        assert dimension.statistics().retries == 2

    assert store.asked() == [[7, 8], [8], [8]]


async def test_row_that_never_comes_is_missing() -> None:
    """After one query more than there are retries the answer is `missing`, and it is kept."""
    store = customers()
    async with running(store, asking_again(2)) as dimension:
        assert await lookup(dimension, 9) == {0: "missing"}
        assert await lookup(dimension, 9) == {0: "missing"}

    assert len(store.batches) == 3


async def test_rows_do_not_wait_for_missing_ones() -> None:
    """What was found is delivered at once, the rest when it is found."""
    delivered: asyncio.Queue[tuple[dict[int, str], bool]] = asyncio.Queue()

    def deliver(answer: Answer, is_last: bool) -> None:  # noqa: FBT001  the shape of Deliver
        delivered.put_nowait((told([answer]), is_last))

    async with running(LateBackend(misses=1), asking_again(1)) as dimension:
        dimension.submit(
            typed(7, 8),
            columns=["name"],
            channel=ChannelId(1),
            timeout_s=PATIENCE_S,
            deliver=deliver,
        )

        assert await delivered.get() == ({0: "fetched Ada"}, False)
        assert await delivered.get() == ({1: "fetched Bert"}, True)


async def test_error_while_asking_again_is_an_error() -> None:
    """A failure between two misses is tried again as a failure, and told as one in the end."""
    store, diary = customers(), DiaryObserver()
    async with running(store, asking_again(5, failures=1), observer=diary) as dimension:
        caller = asyncio.ensure_future(lookup(dimension, 9))
        await store.wait_for_fetches(1)
        store.fail_next(2, DOWN)

        assert await caller == {0: "error backend_unavailable"}
        await diary.wait_for_queries(3)

    assert [ended.result for ended in diary.queries][-2:] == [QueryStatus.ERROR] * 2


async def test_hurried_caller_gets_missing() -> None:
    """A caller whose time ends before the next try is told what is known now."""
    async with running(customers(), asking_again(1, delay_s=5.0)) as dimension:
        assert await lookup(dimension, 9, timeout_s=4.0) == {0: "missing"}
        assert levels(dimension) == (0, 0, 0)


async def test_timeout_frees_a_parked_key() -> None:
    """When the time is over while the retry waits for a slot, nothing of the lookup is left."""
    store, clock = LateBackend(misses=0), HandClock()
    store.hold()
    async with running(store, asking_again(1, delay_s=0.01), clock=clock) as dimension:
        parked = asyncio.ensure_future(lookup(dimension, 9, timeout_s=0.1))
        await store.wait_for_fetches(1)
        blocking = asyncio.ensure_future(lookup(dimension, 8))  # takes the only slot
        await asyncio.sleep(0)  # its turn to ask
        store.pass_one()
        await store.wait_for_fetches(2)
        clock.now_s += 0.05  # the retry is due
        assert await lookup(dimension, 7, timeout_s=0.0) == {0: "timeout timeout"}
        clock.now_s += 0.05

        assert await parked == {0: "timeout timeout"}
        store.release()
        assert await blocking == {0: "fetched Bert"}
        assert levels(dimension) == (0, 0, 0)
    assert len(store.batches) == 2


async def test_timeout_cancels_a_retry() -> None:
    """When the time is over while the key is asked again, that query ends, too."""
    store, diary, clock = LateBackend(misses=0), DiaryObserver(), HandClock()
    store.hold()
    async with running(store, asking_again(1), observer=diary, clock=clock) as dimension:
        caller = asyncio.ensure_future(lookup(dimension, 9, timeout_s=0.1))
        await store.wait_for_fetches(1)
        store.pass_one()
        await diary.wait_for_queries(1)
        clock.now_s += 0.01
        await store.wait_for_fetches(2)
        clock.now_s += 0.1

        assert await caller == {0: "timeout timeout"}
        await diary.wait_for_queries(2)
        assert levels(dimension) == (0, 0, 0)
    assert diary.queries == [QueryEnded(1, QueryStatus.OK), QueryEnded(1, QueryStatus.CANCELLED)]


async def test_cancelled_caller_frees_a_parked_key() -> None:
    """Whoever goes away while its key waits for another try leaves nothing behind."""
    store, diary = customers(), DiaryObserver()
    async with running(store, asking_again(1, delay_s=5.0), observer=diary) as dimension:
        caller = asyncio.ensure_future(lookup(dimension, 9))
        await diary.wait_for_queries(1)
        assert levels(dimension) == (1, 0, 0)
        caller.cancel()
        await asyncio.wait([caller])

        assert (levels(dimension), dimension.is_waited_for) == ((0, 0, 0), False)
    assert len(store.batches) == 1
