"""What one dimension answers, asks and refuses; the model test walks all the interleavings."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.answer import Outcome
from lookup_core.dimension.batcher import ChannelId
from lookup_core.dimension.dimension_events import LookupRequest
from lookup_core.dimension.dimension_state import DimensionState
from lookup_core.dimension.explanation import KeyState
from lookup_core.dimension.flight_table import BatchId, LookupId
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode, Overloaded
from lookup_core.settings import BatchSettings, CacheMode, RetrySettings
from lookup_core.statistics import InvalidationOrigin
from tests.lookup_core.dimension.dimension_script import (
    FAULTY,
    SCHEMA,
    DimensionScript,
    Order,
    Seen,
    settings,
    typed,
)

ONE_SLOT = settings(batch=BatchSettings(max_in_flight=1))


@pytest.fixture
def script() -> DimensionScript:
    """A dimension without retries."""
    return DimensionScript()


# Answers from the cache


def test_fetched_row_is_a_hit_later(script: DimensionScript) -> None:
    """The first lookup asks the backend, the next one is answered at once."""
    assert script.submit(1, 7) == {}
    assert script.order() == Order(1, [7])
    assert script.land(1, {7: "Ada"}) == Seen({1: {0: "fetched Ada"}}, ended=[1])

    assert script.submit(2, 7) == {0: "hit Ada"}
    assert script.order() is None


def test_hits_tell_their_age(script: DimensionScript) -> None:
    """The age of a hit is told in milliseconds."""
    script.keep({7: "Ada"})
    script.now = 9.5

    request = LookupRequest(LookupId(1), ChannelId(0), typed(7), ("name",), 100.0)
    (answer,) = script.state.submit(request, script.now)

    assert answer.ages_ms.tolist() == [9500]


def test_ages_count_from_the_question(script: DimensionScript) -> None:
    """A row or an absence may be as old as the query that was sent for it, and expires so."""
    script.now = 1.0
    script.submit(1, 7, 8)
    script.order()
    script.now = 2.5
    script.land(1, {7: "Ada"})
    script.now = 3.0
    script.submit(2, 7, 8)

    assert script.ages == {(1, 0): 1.5, (1, 1): 1.5, (2, 0): 2.0, (2, 1): 2.0}
    script.now = 6.0
    assert script.submit(3, 7, 8) == {0: "hit Ada"}  # absences live for 5 s
    script.now = 11.0
    assert script.submit(4, 7) == {}


def test_ages_count_from_the_try_that_answered() -> None:
    """What a second try brings is as old as that one, not as the first."""
    script = DimensionScript(settings(retry=RetrySettings(max_retries=1, initial_s=1.0)))
    script.submit(1, 7)
    script.order()
    script.fail(1)
    script.now = 1.5
    script.order()
    script.now = 1.75
    script.land(1, {7: "Ada"})

    assert script.ages == {(1, 0): 0.25}


@pytest.mark.parametrize(("age_s", "is_hit"), [(9.99, True), (10.0, False)])
def test_row_expires_at_its_limit(script: DimensionScript, age_s: float, is_hit: bool) -> None:  # noqa: FBT001  a parameter of the test
    """A row is asked for anew from the moment that its age reaches the limit."""
    script.keep({7: "Ada"})
    script.now = age_s

    assert bool(script.submit(1, 7)) is is_hit
    assert (script.order() is None) is is_hit


@pytest.mark.parametrize(("age_s", "is_known"), [(4.99, True), (5.0, False)])
def test_absence_has_its_own_limit(script: DimensionScript, age_s: float, is_known: bool) -> None:  # noqa: FBT001  as above
    """That a key has no row is believed for the negative time to live."""
    script.submit(1, 7)
    script.order()
    assert script.land(1, {}) == Seen({1: {0: "missing"}}, ended=[1])
    script.now = age_s

    assert (script.submit(2, 7) == {0: "missing"}) is is_known


def test_parts_of_a_request_differ(script: DimensionScript) -> None:
    """Hits, NULLs and faulty keys are answered at once, only the rest is asked."""
    script.keep({7: "Ada"})

    assert script.submit(1, 7, None, FAULTY, 8) == {0: "hit Ada", 1: "missing", 2: "error type"}
    assert script.order() == Order(2, [8])
    assert script.land(2, {8: "Bert"}) == Seen({1: {3: "fetched Bert"}}, ended=[1])


def test_unaskable_keys_ask_nothing(script: DimensionScript) -> None:
    """A NULL matches nothing, a faulty key is an error; neither reaches the backend."""
    assert script.submit(1, None, FAULTY) == {0: "missing", 1: "error type"}
    assert script.order() is None
    assert script.state.next_deadline() is None


def test_no_keys_ask_nothing(script: DimensionScript) -> None:
    """An empty request is answered, with nothing."""
    assert script.submit(1) == {}
    assert script.order() is None


def test_mode_none_keeps_nothing() -> None:
    """Without a cache every lookup asks, but those at the same time share the question."""
    script = DimensionScript(settings(mode=CacheMode.NONE))
    script.submit(1, 7)
    script.order()
    script.submit(2, 7)  # joins
    script.land(1, {7: "Ada"})

    assert script.submit(3, 7) == {}  # nothing was kept
    assert script.order() == Order(2, [7])


def test_columns_come_as_asked() -> None:
    """Only the columns asked for come, in their order, from the backend and from the cache."""
    schema = DimensionSchema(
        pa.schema({"id": pa.int64()}), pa.schema({"a": pa.utf8(), "b": pa.int32(), "c": pa.utf8()})
    )
    state = DimensionState(settings(), schema)
    row = pa.record_batch([["x"], pa.array([2], pa.int32()), ["z"]], schema=schema.columns)
    request = LookupRequest(LookupId(1), ChannelId(0), typed(7), ("c", "a"), 9.0)
    state.submit(request, 0.0)
    order = state.next_order(0.0)
    assert order is not None

    ordinals = pa.array([0], pa.int32()).to_numpy()
    fetched = state.on_rows(order.id, ordinals=ordinals, rows=row, now=0.0).deliveries[0].answer
    (hit,) = state.submit(replace(request, id=LookupId(2)), 0.0)

    assert fetched.rows is not None
    assert hit.rows is not None
    assert fetched.rows.to_pydict() == hit.rows.to_pydict() == {"c": ["z"], "a": ["x"]}
    assert list(fetched.rows.schema.names) == ["c", "a"]


def test_dimension_may_offer_no_columns() -> None:
    """Whether a key exists can be asked without asking for anything of it."""
    schema = DimensionSchema(pa.schema({"id": pa.int64()}), pa.schema([]))
    state = DimensionState(settings(), schema)
    request = LookupRequest(LookupId(1), ChannelId(0), typed(7, 8), (), 9.0)
    state.submit(request, 0.0)
    order = state.next_order(0.0)
    assert order is not None
    ordinals = pa.array([1], pa.int32()).to_numpy()

    effects = state.on_rows(
        order.id, ordinals=ordinals, rows=pa.record_batch([], schema=schema.columns), now=0.0
    )
    again = state.submit(replace(request, id=LookupId(2)), 0.0)

    outcomes = [
        {int(at): Outcome(code) for at, code in zip(each.positions, each.outcomes, strict=True)}
        for each in (*(delivery.answer for delivery in effects.deliveries), *again)
    ]
    assert outcomes == [
        {1: Outcome.FETCHED},
        {0: Outcome.MISSING},
        {0: Outcome.MISSING},
        {1: Outcome.HIT},
    ]


# Coalescing


def test_key_in_flight_is_waited_for(script: DimensionScript) -> None:
    """A key that is being fetched is not fetched again: all who wait get its one answer."""
    script.submit(1, 7)
    assert script.order() == Order(1, [7])  # at the backend
    script.submit(2, 7)  # joins

    assert script.order() is None
    assert script.land(1, {7: "Ada"}) == Seen(
        {1: {0: "fetched Ada"}, 2: {0: "fetched Ada"}}, ended=[1, 2]
    )


def test_queued_key_is_waited_for(script: DimensionScript) -> None:
    """A key that waits for its query is asked once, too."""
    script.submit(1, 7)
    script.submit(2, 7)

    assert script.order() == Order(1, [7])
    assert script.order() is None


def test_duplicates_in_a_request_are_asked_once(script: DimensionScript) -> None:
    """A key that stands several times in one request is one key, answered at every position."""
    script.submit(1, 7, 8, 7)

    assert script.order() == Order(1, [7, 8])
    assert script.land(1, {7: "Ada"}) == Seen(
        {1: {0: "fetched Ada", 2: "fetched Ada", 1: "missing"}}, ended=[1]
    )


def test_overlapping_requests_share(script: DimensionScript) -> None:
    """Two requests ask for what they have in common once, and each waits for all of its own."""
    script.submit(1, 7, 8)
    script.order()
    script.submit(2, 8, 9)

    assert script.order() == Order(2, [9])
    assert script.land(1, {7: "Ada", 8: "Bert"}) == Seen(
        {1: {0: "fetched Ada", 1: "fetched Bert"}, 2: {0: "fetched Bert"}}, ended=[1]
    )
    assert script.land(2, {9: "Cora"}) == Seen({2: {1: "fetched Cora"}}, ended=[2])


# Batches


def test_keys_gather_while_slots_are_busy() -> None:
    """When all slots are taken, what comes meanwhile makes one query together."""
    script = DimensionScript(ONE_SLOT)
    script.submit(1, 7)
    assert script.order() == Order(1, [7])  # at once: a slot was free
    script.submit(2, 8)
    script.submit(3, 9)

    assert script.order() is None  # the only slot is taken
    script.land(1, {})
    assert script.order() == Order(2, [8, 9])


def test_no_more_queries_than_slots() -> None:
    """However many batches are due, `max_in_flight` of them are at the backend."""
    script = DimensionScript(settings(batch=BatchSettings(max_keys=1, max_in_flight=2)))
    script.submit(1, 5, 6, 7)

    assert [script.order(), script.order(), script.order()] == [Order(1, [5]), Order(2, [6]), None]


def test_linger_waits_for_more_keys() -> None:
    """With a linger a batch waits that long for company, then it goes."""
    script = DimensionScript(settings(batch=BatchSettings(linger_s=0.5)))
    script.submit(1, 7)
    script.now = 0.25
    script.submit(2, 8)

    assert script.order() is None
    assert script.state.next_deadline() == 0.5
    script.now = 0.5
    assert script.order() == Order(1, [7, 8])


# Several rows


def test_several_rows_are_an_error(script: DimensionScript) -> None:
    """A key with more than one row is ambiguous, and not cached; its neighbours are fine."""
    script.submit(1, 7, 8, 9)
    script.order()

    assert script.land(1, {7: ["Ada", "Eve"], 8: "Bert"}) == Seen(
        {1: {0: "error ambiguous", 1: "fetched Bert", 2: "missing"}}, ended=[1]
    )
    assert script.submit(2, 7, 8, 9) == {1: "hit Bert", 2: "missing"}


def test_undeliverable_rows_change_nothing(script: DimensionScript) -> None:
    """When the rows of a query cannot be handed out, it can still be failed as a whole."""
    script.submit(1, 7)
    script.order()
    rows = pa.record_batch([["Ada"]], SCHEMA.columns)

    with pytest.raises(IndexError):
        script.state.on_rows(BatchId(1), ordinals=np.array([5], np.int32), rows=rows, now=0.0)

    script.state.check_invariants()
    assert script.fail(1, ErrorCode.INTERNAL) == Seen({1: {0: "error internal"}}, ended=[1])


# Overload


def test_too_many_waiting_keys_are_refused() -> None:
    """Beyond the bound a lookup is refused as a whole; what is cached is still answered."""
    script = DimensionScript(settings(max_waiting_keys=2))
    script.keep({7: "Ada"})
    script.submit(1, 8)
    before = script.state.statistics()

    with pytest.raises(Overloaded) as caught:
        script.submit(2, 7, 8, 9)

    assert (caught.value.code, caught.value.retry_after_s) == (ErrorCode.OVERLOADED, 1.0)
    assert script.state.statistics() == before
    assert script.submit(3, 7, 9) == {0: "hit Ada"}


def test_room_comes_back_with_answers() -> None:
    """Answered keys make room for others."""
    script = DimensionScript(settings(max_waiting_keys=1))
    script.submit(1, 7)
    script.order()
    script.land(1, {})

    assert script.submit(2, 8) == {}


def test_deserted_keys_in_the_queue_count() -> None:
    """Callers who come and go while the backend is stuck cannot fill the queue without end."""
    script = DimensionScript(replace(ONE_SLOT, max_waiting_keys=2))
    script.submit(1, 1)
    script.order()  # the backend is stuck
    script.submit(2, 8)
    script.leave(2)
    script.submit(3, 9)
    script.leave(3)

    with pytest.raises(Overloaded):
        script.submit(4, 10)
    script.land(1, {})
    assert script.order() is None  # the turn of those who left
    assert script.submit(4, 10) == {}


# What people see


def test_explains_where_a_key_stands() -> None:
    """Each state of a key has its word, with ages where it is cached and waiters where not."""
    script = DimensionScript(ONE_SLOT)
    script.keep({1: "Ada"})
    script.submit(1, 2)
    script.order()
    script.land(2, {})
    script.now = 1.0
    script.submit(2, 3)
    script.order()
    script.submit(3, 4, 4)

    explained = script.explain(1, 2, 3, 4, 5, None, FAULTY)

    assert [(each.state, each.age_ms, each.expires_in_ms, each.waiters) for each in explained] == [
        (KeyState.CACHED, 1000, 9000, 0),
        (KeyState.MISSING_CACHED, 1000, 4000, 0),
        (KeyState.IN_FLIGHT, None, None, 1),
        (KeyState.IN_FLIGHT, None, None, 2),
        (KeyState.NOT_CACHED, None, None, 0),
        (KeyState.UNASKABLE, None, None, 0),
        (KeyState.UNASKABLE, None, None, 0),
    ]


def test_statistics_count_what_happened() -> None:
    """Totals of outcomes, coalesced keys, retries and invalidations; levels of what waits."""
    script = DimensionScript(replace(ONE_SLOT, retry=RetrySettings(max_retries=1, initial_s=1.0)))
    script.keep({1: "Ada"})
    script.submit(1, 1, 1, None, 2)  # two hits, one missing, one waits
    script.order()
    script.submit(2, 2, 3, 3)  # joins 2, asks for 3 once
    script.fail(2)
    script.invalidate(1, 8)
    script.now = 1.0

    statistics = script.state.statistics()

    zeros = dict.fromkeys(Outcome, 0)
    assert statistics.outcomes == zeros | {Outcome.FETCHED: 1, Outcome.HIT: 2, Outcome.MISSING: 1}
    assert (statistics.coalesced_keys, statistics.retries) == (2, 1)
    assert statistics.invalidations[InvalidationOrigin.ADMIN] == 2
    assert (statistics.waiting_keys, statistics.queued_keys) == (4, 1)
    assert (statistics.queries_in_flight, statistics.concurrency_limit) == (0, 1)
    assert (script.state.oldest_row_age_s(script.now), statistics.cache.rows) == (None, 0)


def test_hit_alone_counts_as_one(script: DimensionScript) -> None:
    """A key that is asked for by its value is found, and counted, as it is among others."""
    script.keep({7: "Ada"})
    before = script.state.statistics().outcomes[Outcome.HIT]

    assert script.state.hit(7, script.now) is not None
    assert script.state.hit(8, script.now) is None
    assert script.state.statistics().outcomes[Outcome.HIT] == before + 1


def test_revisit_alone_counts_as_a_hit(script: DimensionScript) -> None:
    """A row that is found again is counted as it was the first time, one that went is not."""
    script.keep({7: "Ada"})
    hit = script.state.hit(7, script.now)

    assert hit is not None
    ages_s = [script.state.revisit(hit.bookmark, script.now)]
    script.state.invalidate(None, InvalidationOrigin.ADMIN)
    ages_s.append(script.state.revisit(hit.bookmark, script.now))

    assert ages_s == [hit.age_s, None]
    assert script.state.statistics().outcomes[Outcome.HIT] == 2
