"""A dimension at work: its queries, its clock, and callers who come, wait and go."""

import asyncio

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.answer import Answer, Outcome
from lookup_core.dimension.batcher import ChannelId
from lookup_core.dimension.explanation import KeyState
from lookup_core.errors import BackendError, ErrorCode, InvalidRequest, Overloaded
from lookup_core.settings import BatchSettings, RetrySettings
from lookup_core.statistics import InvalidationOrigin, no_statistics
from service.connectors.memory.backend import FakeBackend
from service.connectors.ports.backend import FetchedRows
from service.engine.dimension import Dimension
from service.engine.gathering import Submitted
from service.engine.observer import QueryStatus
from tests.hand_clock import HandClock
from tests.service.engine.running import (
    PATIENCE_S,
    ROWS,
    SCHEMA,
    DiaryObserver,
    QueryEnded,
    customers,
    running,
    settings,
    told,
    typed,
)

DOWN = BackendError(ErrorCode.BACKEND_UNAVAILABLE, "customers: down")
ONE_BY_ONE = settings(batch=BatchSettings(max_keys=1, max_in_flight=1))
RETRY_AT_ONCE = settings(retry=RetrySettings(max_retries=1, initial_s=0.0))
RETRY_MUCH_LATER = settings(retry=RetrySettings(max_retries=1, initial_s=5.0, max_s=5.0))


async def lookup(
    dimension: Dimension, *keys: int | None, timeout_s: float | None = None
) -> dict[int, str]:
    """A caller that waits for all answers."""
    return told(await dimension.lookup(typed(*keys), columns=None, timeout_s=timeout_s))


def start(dimension: Dimension, *keys: int) -> "asyncio.Task[dict[int, str]]":
    """A caller in a task of its own; it asks when it gets its turn."""
    return asyncio.ensure_future(lookup(dimension, *keys))


def submit(dimension: Dimension, *keys: int, timeout_s: float = PATIENCE_S) -> Submitted:
    """A caller that asks now, and does not care for what is delivered."""
    return dimension.submit(
        typed(*keys),
        columns=None,
        channel=ChannelId(1),
        timeout_s=timeout_s,
        deliver=_ignore,
    )


def _ignore(answer: Answer, is_last: bool) -> None:  # noqa: FBT001  the shape of Deliver
    del answer, is_last


# Answers


async def test_fetched_then_from_the_cache() -> None:
    """The first lookup asks the store, the second one is answered without it."""
    store = customers()
    async with running(store) as dimension:
        first = await lookup(dimension, 7, 9, None, 6, 7)
        second = await lookup(dimension, 7, 9)

    assert first == {
        0: "fetched Ada",
        1: "missing",
        2: "missing",
        3: "error ambiguous",
        4: "fetched Ada",
    }
    assert second == {0: "hit Ada", 1: "missing"}
    assert [batch.column(0).to_pylist() for batch in store.batches] == [[7, 9, 6]]


async def test_callers_share_a_fetch() -> None:
    """Those who ask for a key while it is fetched wait for the same query."""
    store = customers()
    store.hold()
    async with running(store) as dimension:
        first = start(dimension, 7)
        await store.wait_for_fetches(1)
        second = start(dimension, 7)
        await asyncio.sleep(0)  # its turn to ask
        store.release()

        assert await first == await second == {0: "fetched Ada"}
    assert len(store.batches) == 1


async def test_keys_gather_while_the_store_is_busy() -> None:
    """What comes while the only slot is taken makes one query together."""
    store = customers()
    store.hold()
    async with running(store, settings(batch=BatchSettings(max_in_flight=1))) as dimension:
        callers = [start(dimension, 7)]
        await store.wait_for_fetches(1)
        callers += [start(dimension, 8), start(dimension, 9)]
        await asyncio.sleep(0)  # their turn to ask
        store.release()
        await asyncio.gather(*callers)

    assert [batch.column(0).to_pylist() for batch in store.batches] == [[7], [8, 9]]


async def test_answers_are_delivered_in_parts() -> None:
    """What is known comes at once, the rest as it is brought; the last part says so."""
    store = customers()
    delivered: list[tuple[dict[int, str], bool]] = []
    async with running(store, ONE_BY_ONE) as dimension:
        await lookup(dimension, 7)
        ended = asyncio.Event()

        def deliver(answer: Answer, is_last: bool) -> None:  # noqa: FBT001  the shape of Deliver
            delivered.append((told([answer]), is_last))
            if is_last:
                ended.set()

        submitted = dimension.submit(
            typed(7, 8, 9),
            columns=["name"],
            channel=ChannelId(1),
            timeout_s=PATIENCE_S,
            deliver=deliver,
        )
        await ended.wait()

    assert (told(submitted.answers), submitted.is_done) == ({0: "hit Ada"}, False)
    assert delivered == [({1: "fetched Bert"}, False), ({2: "missing"}, True)]


async def test_nothing_asked_is_done_at_once() -> None:
    """A request without keys, or with cached ones only, waits for nothing."""
    async with running(customers()) as dimension:
        await lookup(dimension, 7)

        assert submit(dimension).is_done
        assert submit(dimension, 7).is_done
        assert not dimension.is_waited_for
        assert not submit(dimension, 8).is_done
        assert dimension.is_waited_for


# Refusals


async def test_unknown_schema_refuses_lookups() -> None:
    """While the store is down at the start, a lookup gets the store's fault; figures are zero."""
    store = customers()
    store.describe_error = DOWN
    dimension = Dimension(settings(), store)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(dimension.run())
        for ask in (
            dimension.wait_until_described(0.01),
            dimension.lookup(typed(7), columns=None, timeout_s=1.0),
        ):
            with pytest.raises(BackendError) as caught:
                await ask
            assert caught.value is DOWN
        assert dimension.statistics() == no_statistics(settings())
        task.cancel()


async def test_lookups_work_once_described() -> None:
    """When the store comes up, the dimension is there without a restart."""
    store = customers()
    store.describe_error = DOWN
    dimension = Dimension(settings(), store)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(dimension.run())
        with pytest.raises(BackendError):
            await dimension.wait_until_described(0.01)
        store.describe_error = None

        schema = await dimension.wait_until_described(PATIENCE_S)

        assert schema is dimension.schema
        assert await lookup(dimension, 7) == {0: "fetched Ada"}
        task.cancel()


async def test_unknown_column_is_refused() -> None:
    """A column that the dimension does not offer fails the request before any work."""
    store = customers()
    async with running(store) as dimension:
        with pytest.raises(InvalidRequest) as caught:
            await dimension.lookup(typed(7), columns=["nam"], timeout_s=None)

    assert caught.value.code is ErrorCode.UNKNOWN_COLUMN
    assert store.batches == []


async def test_too_many_keys_are_refused() -> None:
    """Beyond the bound the caller is told to come back later; nothing of it waits."""
    async with running(customers(), settings(keys=1)) as dimension:
        with pytest.raises(Overloaded):
            await lookup(dimension, 7, 8)

        assert not dimension.is_waited_for
        assert await lookup(dimension, 7) == {0: "fetched Ada"}


# Deadlines


async def test_lookup_ends_at_its_deadline() -> None:
    """A store that does not answer costs its caller no more than the timeout; the query ends."""
    store, diary, clock = customers(), DiaryObserver(), HandClock()
    store.hold()
    async with running(store, observer=diary, clock=clock) as dimension:
        late = asyncio.ensure_future(lookup(dimension, 7, timeout_s=0.1))
        await store.wait_for_fetches(1)
        clock.now_s += 0.1

        assert await late == {0: "timeout timeout"}
        await diary.wait_for_queries(1)

    assert diary.queries == [QueryEnded(1, QueryStatus.CANCELLED)]
    assert (store.cancelled_total, diary.lookups) == (1, 1)


async def test_short_deadline_ends_alone() -> None:
    """Who has more time gets the row from the query of the one who had less."""
    store = customers()
    store.hold()
    async with running(store) as dimension:
        hasty = asyncio.ensure_future(lookup(dimension, 7, timeout_s=0.01))
        patient = start(dimension, 7)

        assert await hasty == {0: "timeout timeout"}
        store.release()
        assert await patient == {0: "fetched Ada"}
    assert len(store.batches) == 1


async def test_timeout_is_that_of_the_settings() -> None:
    """Who names no timeout has that of the dimension, and the query gets it, too."""
    store = customers()
    store.hold()
    chosen = settings()
    async with running(store, chosen) as dimension:
        caller = start(dimension, 7)
        await store.wait_for_fetches(1)

        assert dimension.settings.timeout_s == chosen.timeout_s == PATIENCE_S
        store.release()
        assert await caller == {0: "fetched Ada"}


# Leaving


async def test_cancelled_caller_harms_nobody() -> None:
    """A caller that goes away leaves its flight to the others."""
    store = customers()
    store.hold()
    async with running(store) as dimension:
        gone, stays = start(dimension, 7), start(dimension, 7)
        await store.wait_for_fetches(1)
        gone.cancel()
        await asyncio.wait([gone])
        store.release()

        assert await stays == {0: "fetched Ada"}
    assert (len(store.batches), store.cancelled_total) == (1, 0)


async def test_last_caller_cancels_the_fetch() -> None:
    """When nobody waits any more, the query at the store ends and its slot is free."""
    store, diary = customers(), DiaryObserver()
    store.hold()
    async with running(store, ONE_BY_ONE, observer=diary) as dimension:
        caller = start(dimension, 7)
        await store.wait_for_fetches(1)
        caller.cancel()
        await diary.wait_for_queries(1)
        store.release()

        assert await lookup(dimension, 7) == {0: "fetched Ada"}
    assert store.cancelled_total == 1


async def test_caller_cancelled_while_its_row_lands() -> None:
    """A caller that goes away in the very moment of its answer stops nothing."""
    store = customers()
    store.hold()
    async with running(store) as dimension:
        caller = start(dimension, 7)
        await store.wait_for_fetches(1)
        store.release()  # the fetch goes on at the next turn of the loop,
        caller.cancel()  # and only then does the caller notice

        await asyncio.wait([caller])
        assert caller.cancelled()
        assert await lookup(dimension, 7) == {0: "hit Ada"}


async def test_query_cancelled_before_it_began() -> None:
    """A query whose caller leaves before its first step frees its slot for those who wait."""
    store = customers()
    async with running(store, ONE_BY_ONE) as dimension:
        submitted = submit(dimension, 7)  # wakes the dimension, which makes a task for the query
        submit(dimension, 8)  # waits for the only slot
        loop = asyncio.get_running_loop()
        loop.call_soon(dimension.leave, submitted.lookup_id)  # before the task's first step

        await store.wait_for_fetches(1)
    assert [batch.column(0).to_pylist() for batch in store.batches] == [[8]]


async def test_caller_leaves_between_two_tries() -> None:
    """Whoever leaves while the query waits for its next try leaves nothing to cancel."""
    store, diary = customers(), DiaryObserver()
    store.fail_next(1, DOWN)
    async with running(store, RETRY_MUCH_LATER, observer=diary) as dimension:
        caller = start(dimension, 7)
        await diary.wait_for_queries(1)
        caller.cancel()
        await asyncio.wait([caller])

        assert caller.cancelled()
        assert await lookup(dimension, 7) == {0: "fetched Ada"}


async def test_deadline_passes_between_two_tries() -> None:
    """A lookup that would still be there for its retry, but finds no slot, times out."""
    store, diary, clock = customers(), DiaryObserver(), HandClock()
    store.fail_next(1, DOWN)
    retry = RetrySettings(max_retries=1, initial_s=0.02, max_s=0.02)
    chosen = settings(batch=BatchSettings(max_keys=1, max_in_flight=1), retry=retry)
    async with running(store, chosen, observer=diary, clock=clock) as dimension:
        parked = asyncio.ensure_future(lookup(dimension, 7, timeout_s=0.1))
        await diary.wait_for_queries(1)
        store.hold()
        blocking = start(dimension, 8)  # takes the slot
        await store.wait_for_fetches(2)
        clock.now_s += 0.05  # the retry is due
        assert await lookup(dimension, 9, timeout_s=0.0) == {0: "timeout timeout"}
        clock.now_s += 0.05

        assert await parked == {0: "timeout timeout"}
        store.release()
        assert await blocking == {0: "fetched Bert"}


async def test_leaving_after_the_end_is_harmless() -> None:
    """A lookup that has ended, or was left, can be left again."""
    async with running(customers()) as dimension:
        submitted = submit(dimension, 7)

        dimension.leave(submitted.lookup_id)
        dimension.leave(submitted.lookup_id)

        assert not dimension.is_waited_for


# Failures


async def test_failed_query_is_tried_again() -> None:
    """The caller notices nothing of a failure that passes; each try is told."""
    store, diary = customers(), DiaryObserver()
    store.fail_next(1, DOWN)
    async with running(store, RETRY_AT_ONCE, observer=diary) as dimension:
        assert await lookup(dimension, 7) == {0: "fetched Ada"}
        await diary.wait_for_queries(2)
        assert dimension.statistics().retries == 1

    assert diary.queries == [QueryEnded(1, QueryStatus.ERROR), QueryEnded(1, QueryStatus.OK)]


@pytest.mark.parametrize(
    ("error", "word", "result"),
    [
        (DOWN, "error backend_unavailable", QueryStatus.ERROR),
        (BackendError(ErrorCode.TIMEOUT, "slow"), "timeout timeout", QueryStatus.TIMEOUT),
    ],
)
async def test_failure_is_an_outcome(error: BackendError, word: str, result: QueryStatus) -> None:
    """A query that fails for good gives its keys the error; it is never cached as an absence."""
    store, diary = customers(), DiaryObserver()
    store.fail_next(1, error)
    async with running(store, observer=diary) as dimension:
        assert await lookup(dimension, 7) == {0: word}
        assert await lookup(dimension, 7) == {0: "fetched Ada"}
        await diary.wait_for_queries(2)

    assert diary.queries == [QueryEnded(1, result), QueryEnded(1, QueryStatus.OK)]


class DefectiveBackend(FakeBackend):
    """Has a defect in its first fetch."""

    def __init__(self, defect: BaseException) -> None:
        super().__init__(ROWS, SCHEMA)
        self._defect: BaseException | None = defect

    async def fetch(self, keys: pa.RecordBatch, *, timeout_s: float) -> FetchedRows:
        """Fail as no backend may."""
        defect, self._defect = self._defect, None
        if defect is not None:
            raise defect
        return await super().fetch(keys, timeout_s=timeout_s)


@pytest.mark.parametrize("defect", [ZeroDivisionError(), asyncio.CancelledError()])
async def test_defect_ends_its_own_lookups_only(defect: BaseException) -> None:
    """Whatever an adapter raises, its query fails, nobody waits in vain, and the rest goes on."""
    async with running(DefectiveBackend(defect), ONE_BY_ONE) as dimension:
        assert await lookup(dimension, 7) == {0: "error internal"}
        assert await lookup(dimension, 7) == {0: "fetched Ada"}


class UndeliverableBackend(FakeBackend):
    """Its first rows look right, but nobody can hand them out."""

    async def fetch(self, keys: pa.RecordBatch, *, timeout_s: float) -> FetchedRows:
        """Number the rows by fractions."""
        fetched = await super().fetch(keys, timeout_s=timeout_s)
        if len(self.batches) > 1:
            return fetched
        return FetchedRows(fetched.ordinals.astype(np.float64), fetched.rows)


async def test_undeliverable_rows_fail_their_query() -> None:
    """Rows that cannot be handed out are an error for those who wait; the process lives."""
    async with running(UndeliverableBackend(ROWS, SCHEMA), ONE_BY_ONE) as dimension:
        assert await lookup(dimension, 7) == {0: "error internal"}
        assert await lookup(dimension, 7) == {0: "fetched Ada"}


async def test_end_cancels_all_queries() -> None:
    """When a dimension is stopped, nothing of it is left at the store."""
    store = customers()
    store.hold()
    async with running(store, settings(batch=BatchSettings(max_keys=1))) as dimension:
        submit(dimension, 7, 8)
        await store.wait_for_fetches(2)

    assert store.cancelled_total == 2


# What people see and do


async def test_invalidated_key_is_fetched_anew() -> None:
    """After an invalidation the next lookup asks the store."""
    async with running(customers()) as dimension:
        await lookup(dimension, 7, 8)

        assert dimension.invalidate(typed(7), origin=InvalidationOrigin.ADMIN) == 1
        assert await lookup(dimension, 7, 8) == {0: "fetched Ada", 1: "hit Bert"}
        assert dimension.invalidate(None, origin=InvalidationOrigin.ADMIN) == 2


async def test_keys_are_explained() -> None:
    """Whoever wonders about a key is told where its answer would come from."""
    async with running(customers()) as dimension:
        await lookup(dimension, 7)

        states = [each.state for each in dimension.explain(typed(7, 8, None))]

    assert states == [KeyState.CACHED, KeyState.NOT_CACHED, KeyState.UNASKABLE]


async def test_limited_cache_gives_rows_up() -> None:
    """A dimension at work that is told to need less keeps less; told otherwise, it keeps again."""
    async with running(customers()) as dimension:
        await lookup(dimension, 7)
        dimension.limit_cache(0.0)
        assert [await lookup(dimension, 7) for _ in range(2)] == [{0: "fetched Ada"}] * 2
        dimension.limit_cache(1.0)
        await lookup(dimension, 7)

        assert await lookup(dimension, 7) == {0: "hit Ada"}


async def test_statistics_count_lookups() -> None:
    """The figures are those of the keys that were looked up."""
    diary = DiaryObserver()
    async with running(customers(), observer=diary) as dimension:
        await lookup(dimension, 7, 9)
        await lookup(dimension, 7)
        statistics = dimension.statistics()

    zeros = dict.fromkeys(Outcome, 0)
    assert statistics.outcomes == zeros | {
        Outcome.FETCHED: 1,
        Outcome.MISSING: 1,
        Outcome.HIT: 1,
    }
    assert (dimension.name, diary.lookups) == ("customers", 2)


async def test_cached_row_is_told_at_once() -> None:
    """A row that was looked up before is found by its key's value; that is a lookup like others."""
    observer = DiaryObserver()
    async with running(customers(), observer=observer) as dimension:
        assert dimension.hit(7) is None
        await lookup(dimension, 7)
        hit = dimension.hit(7)

    assert hit is not None
    assert [column[hit.row.at].as_py() for column in hit.row.columns] == ["Ada", 1]
    assert observer.lookups == 2
    assert dimension.statistics().outcomes[Outcome.HIT] == 1


async def test_row_is_told_again_at_once() -> None:
    """A row that was a hit is one again by its bookmark, until it is forgotten."""
    observer = DiaryObserver()
    async with running(customers(), observer=observer) as dimension:
        await lookup(dimension, 7)
        hit = dimension.hit(7)
        assert hit is not None
        again = dimension.revisit(hit.bookmark)
        dimension.invalidate(None, origin=InvalidationOrigin.ADMIN)

    assert again is not None
    assert again >= hit.age_s
    assert dimension.revisit(hit.bookmark) is None
    assert (observer.lookups, dimension.statistics().outcomes[Outcome.HIT]) == (3, 2)


def test_unknown_dimension_has_no_hits() -> None:
    """Before the store has described itself there is nothing to be found."""
    assert Dimension(settings(), customers()).hit(7) is None
