"""Answers to lookups: from the cache, from shared queries, and in place of a missing row."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.dimension.dimension_events import BatchId, FetchedRows, QueryResult, UnfitRows
from lookup_core.dimension.dimension_state import DimensionState
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode
from lookup_core.protection.circuit_breaker import BreakerState
from lookup_core.settings import CacheMode, CacheSettings
from tests.lookup_core.dimension.scenario import (
    FAULTY,
    SCHEMA,
    TTL_S,
    Order,
    Result,
    Scenario,
    Words,
    ended,
    request,
    settings,
)


@pytest.mark.parametrize(
    ("names", "age_s", "words"),
    [
        ({7: "Ada"}, 9.99, {0: "hit Ada"}),
        ({7: "Ada"}, 10.0, {}),
        ({}, 4.99, {0: "missing"}),
        ({}, 5.0, {}),
    ],
    ids=["fresh row", "expired row", "fresh negative entry", "expired negative entry"],
)
def test_entry_expires_at_its_limit(
    scenario: Scenario, names: dict[int, str], age_s: float, words: Words
) -> None:
    """A row expires at the age `ttl`, a negative entry at `negative_ttl`; then a query is sent."""
    scenario.land(scenario.query(1, 7), names)
    scenario.now = age_s

    assert scenario.look_up(2, 7) == words
    assert (scenario.send() is None) is bool(words)


@pytest.mark.parametrize(
    ("read_at", "age_s", "since"), [(None, 1.5, 1.0), (-3.0, 5.5, -3.0), (1.5, 1.0, 1.0)]
)
def test_ages_count_from_the_read(
    scenario: Scenario, read_at: float | None, age_s: float, since: float
) -> None:
    """An entry is as old as its query, or as the read of the backend if that was earlier."""
    scenario.now = 1.0
    batch = scenario.query(1, 7, 8)
    scenario.now = 2.5
    scenario.land(batch, {7: "Ada"}, read_at=read_at)
    assert scenario.ages == {(1, 0): age_s, (1, 1): age_s}

    scenario.now = since + 9.5
    assert scenario.look_up(2, 7, 8) == {0: "hit Ada"}
    scenario.now = since + 10.0
    assert scenario.look_up(3, 7) == {}
    assert scenario.ages[2, 0] == 9.5


@pytest.mark.parametrize(("age_s", "age_ms"), [(1.0, 1_000), (50 * 86_400.0, 2**32 - 1)])
def test_ages_of_answers_are_capped(age_s: float, age_ms: int) -> None:
    """Ages are exact to the millisecond up to seven weeks; greater ages are reported as these."""
    scenario = Scenario(replace(settings(), cache=CacheSettings(ttl_s=1e9)))
    scenario.now = 1e9
    scenario.cache({7: "Ada"})
    scenario.now += age_s

    assert scenario.look_up(1, 7) == {0: "hit Ada"}
    assert scenario.ages[1, 0] == age_ms / 1000


@pytest.mark.parametrize("mode", CacheMode)
def test_only_partial_mode_keeps_rows(mode: CacheMode) -> None:
    """Without a cache every lookup is queried, but simultaneous ones share the query."""
    scenario = Scenario(settings(mode=mode))
    batch = scenario.query(1, 7)
    scenario.look_up(2, 7)
    assert scenario.send() is None

    both = scenario.land(batch, {7: "Ada"})

    assert both == Result({1: {0: "fetched Ada"}, 2: {0: "fetched Ada"}}, ended=[1, 2])
    assert scenario.look_up(3, 7) == ({0: "hit Ada"} if mode is CacheMode.PARTIAL else {})


def test_cache_memory_can_be_withdrawn(scenario: Scenario) -> None:
    """A cache without memory drops its rows, and keeps rows again when it has some."""
    scenario.cache({7: "Ada"})

    scenario.state.limit_cache(0.0)
    assert scenario.statistics.cache.rows == 0
    scenario.state.limit_cache(0.5)
    scenario.cache({7: "Ada"})

    assert scenario.statistics.cache.max_bytes == 128 * 2**20
    assert scenario.look_up(1, 7) == {0: "hit Ada"}


def test_single_hits_are_counted(scenario: Scenario) -> None:
    """A single key is found by its value, until its row goes."""
    scenario.cache({7: "Ada"})
    hit = scenario.state.local.single_keys.hit(7, 1.0)

    assert hit is not None
    assert (hit.row.columns[-1][hit.row.at].as_py(), hit.age_s) == ("Ada", 1.0)
    probed = ((8, 1.0), ("7", 1.0), (7, 11.0))
    misses = [scenario.state.local.single_keys.hit(value, now) for value, now in probed]
    assert misses == [None] * 3
    scenario.invalidate()
    assert scenario.state.local.single_keys.hit(7, 2.0) is None
    assert scenario.outcomes == {"fetched": 1, "hit": 1}


def test_parts_of_a_request_differ(scenario: Scenario) -> None:
    """Hits, NULLs and faulty keys are answered at once; only the rest is queried."""
    scenario.cache({7: "Ada"})
    assert scenario.look_up(1) == {}
    assert scenario.look_up(2, None, FAULTY) == {0: "missing", 1: "error type"}
    assert (scenario.send(), scenario.next_deadline) == (None, None)

    words = scenario.look_up(3, 7, None, FAULTY, 8, None)

    assert words == {0: "hit Ada", 1: "missing", 2: "error type", 4: "missing"}
    assert scenario.send() == Order(2, [8])
    assert scenario.land(2, {8: "Bert"}) == Result({3: {3: "fetched Bert"}}, ended=[3])
    assert scenario.outcomes == {"fetched": 2, "hit": 1, "missing": 3, "error": 2}


def test_columns_keep_the_requested_order() -> None:
    """A lookup gets its own columns in its own order, from the backend and from the cache."""
    columns = pa.schema({"a": pa.utf8(), "b": pa.int32(), "c": pa.utf8()})
    state = DimensionState(settings(), DimensionSchema(SCHEMA.key, columns))
    rows = pa.record_batch([["x", "y"], pa.array([2, 3], pa.int32()), ["z", "w"]], schema=columns)
    state.submit(request(1, 7, 8, 7, columns=("c", "a")), 0.0)
    state.submit(request(2, 8, columns=("b",)), 0.0)
    order = state.next_order(0.0)
    assert order is not None

    effects = state.on_rows(order.id, FetchedRows(np.array([1, 0], np.int32), rows), now=0.0)
    (hit,) = state.submit(request(3, 7, columns=("c", "a")), 0.0).answers

    answers = [*(each.answer for each in effects.deliveries), hit]
    assert [list(each.rows.to_pydict().items()) for each in answers if each.rows is not None] == [
        [("c", ["w", "z", "w"]), ("a", ["y", "x", "y"])],
        [("b", [2])],
        [("c", ["w"]), ("a", ["y"])],
    ]


def test_dimension_without_columns_knows_existence() -> None:
    """A lookup without columns reports only whether the key exists."""
    state = DimensionState(settings(), DimensionSchema(SCHEMA.key, pa.schema([])))
    state.submit(request(1, 7, 8, columns=()), 0.0)
    order = state.next_order(0.0)
    assert order is not None

    rows = pa.record_batch([], schema=pa.schema([]))
    effects = state.on_rows(order.id, FetchedRows(np.array([1], np.int32), rows), now=0.0)
    later = state.submit(request(2, 7, 8, columns=()), 0.0)

    answers = [*(delivery.answer for delivery in effects.deliveries), *later.answers]
    outcomes = [(each.positions.tolist(), each.outcomes.tolist()) for each in answers]
    assert outcomes == [([1], [1]), ([0], [2]), ([0], [2]), ([1], [0])]


def test_key_in_flight_is_shared(scenario: Scenario) -> None:
    """A key that is queued or being fetched is not fetched again; all waiters get its row."""
    scenario.look_up(1, 8, 7, 7, 8)
    scenario.look_up(2, 7, 9)
    assert scenario.send() == Order(1, [8, 7, 9])
    scenario.look_up(3, 9, 5)
    assert scenario.send() == Order(2, [5])

    assert [int(each) for each in scenario.state.callers(BatchId(1))] == [1, 2, 3]
    assert scenario.statistics.coalesced_keys == 4
    assert scenario.land(1, {7: "Ada", 9: "Cora"}) == Result(
        {
            1: {0: "missing", 3: "missing", 1: "fetched Ada", 2: "fetched Ada"},
            2: {0: "fetched Ada", 1: "fetched Cora"},
            3: {0: "fetched Cora"},
        },
        ended=[1, 2],
    )
    assert scenario.state.callers(BatchId(1)) == set()
    assert scenario.land(2) == Result({3: {1: "missing"}}, ended=[3])


def test_many_waiting_lookups_stay_apart() -> None:
    """Thousands of waiters at a time are each answered at their own positions."""
    scenario = Scenario(settings(max_keys=64, max_in_flight=99, max_waiting_keys=10_000))
    lookups = {number: range(number * 30, number * 30 + 60) for number in range(1, 41)}
    for number, keys in lookups.items():
        scenario.look_up(number, *keys)
    answers: dict[int, Words] = {number: {} for number in lookups}

    for order in [*iter(scenario.send, None)]:
        rows = {key: f"row {key}" for key in order.keys}
        for lookup, words in scenario.land(order.batch, rows).answers.items():
            answers[lookup] |= words

    assert answers == {
        number: {at: f"fetched row {key}" for at, key in enumerate(keys)}
        for number, keys in lookups.items()
    }


def test_several_rows_are_an_error(scenario: Scenario) -> None:
    """A key with several rows is ambiguous and not cached; other keys are not affected."""
    batch = scenario.query(1, 7, 8, 9)

    result = scenario.land(batch, {7: ["Ada", "Eve"], 8: "Bert"})

    assert result == ended(1, "error ambiguous", "fetched Bert", "missing")
    assert scenario.look_up(2, 7, 8, 9) == {1: "hit Bert", 2: "missing"}


@pytest.mark.parametrize("code", [ErrorCode.VALUE_REJECTED, ErrorCode.ROW_TOO_LARGE])
def test_unfit_rows_fail_their_keys(code: ErrorCode) -> None:
    """A row that cannot be an answer fails its key alone, which has no stale row either."""
    scenario = Scenario(settings(if_error_s=100.0))
    scenario.cache({7: "Ada"})
    scenario.now = TTL_S
    batch = scenario.query(1, 7, 8, 9)

    result = scenario.land(batch, {8: "Bert"}, unfit={7: code})

    assert result == ended(1, f"error {code}", "fetched Bert", "missing")
    assert scenario.breaker is BreakerState.CLOSED
    assert scenario.look_up(2, 7, 8, 9) == {1: "hit Bert", 2: "missing"}
    assert scenario.land(scenario.resend(), {7: "Eve"}) == ended(2, "fetched Eve")


def test_rows_follow_their_keys() -> None:
    """The rows of a selection of keys belong to the keys of the whole batch."""
    rows = pa.record_batch([["Ada", "Bert"]], SCHEMA.columns)
    ordinals = np.array([1], np.int32)
    unfit = UnfitRows.too_large(ordinals, row_bytes=2**20, columns=["name"])
    order, last = np.array([4, 2, 6, 9], np.int32), np.array([3], np.int32)

    rows_of_some = FetchedRows(np.array([2, 0], np.int32), rows, unfit=[unfit], deferred=last)
    fetched = rows_of_some.of_order(order)

    assert (fetched.ordinals.tolist(), fetched.rows) == ([6, 4], rows)
    assert [(each.code, each.ordinals.tolist()) for each in fetched.unfit] == [
        (ErrorCode.ROW_TOO_LARGE, [2])
    ]
    assert "exceed limits.row_bytes (1 MiB), most in name; raise it" in unfit.detail
    assert fetched.deferred.tolist() == [9]


def test_undeliverable_rows_answer_nothing(scenario: Scenario) -> None:
    """A query whose rows cannot be delivered can still fail; its deferred keys are queried."""
    batch = scenario.query(1, 7, 8)
    rows = pa.record_batch([["Ada"]], SCHEMA.columns)
    fetched = FetchedRows(np.array([5], np.int32), rows)

    with pytest.raises(IndexError):
        scenario.state.on_rows(BatchId(batch), fetched, now=0.0)
    scenario.state.check_invariants()
    assert scenario.fail(batch, ErrorCode.INTERNAL) == ended(1, *["error internal"] * 2)

    batch, deferred = scenario.query(2, 7, 8), np.array([1], np.int32)
    beyond = pa.record_batch([["Ada"]], ["other"])
    fetched = FetchedRows(np.array([0], np.int32), beyond, deferred=deferred)
    with pytest.raises(KeyError):
        scenario.state.on_rows(BatchId(batch), fetched, now=0.0)
    scenario.state.check_invariants()
    assert scenario.fail(batch, ErrorCode.INTERNAL) == Result({2: {0: "error internal"}})
    assert scenario.land(scenario.resend(), {8: "Bert"}) == Result({2: {1: "fetched Bert"}}, [2])


def test_default_row_replaces_missing() -> None:
    """The default row replaces missing keys, negative entries and NULLs; never an error."""
    scenario = Scenario(settings(default={"name": "guest"}))
    assert scenario.look_up(1, 7, None, 8, FAULTY) == {1: "default guest", 3: "error type"}
    batch = scenario.resend()
    scenario.now = 1.0

    result = scenario.land(batch, {8: "Bert"})

    assert result == Result({1: {0: "default guest", 2: "fetched Bert"}}, ended=[1])
    assert scenario.look_up(2, 7, 8) == {0: "default guest", 1: "hit Bert"}
    assert [scenario.ages[place] for place in ((1, 0), (1, 1), (2, 0))] == [1.0, 0.0, 1.0]
    failed = scenario.fail(scenario.query(3, 9), ErrorCode.FORBIDDEN)
    assert failed == ended(3, "error forbidden")


@pytest.mark.parametrize(("length", "is_copied"), [(10, True), (10_000, False)])
def test_large_rows_are_not_copied(length: int, *, is_copied: bool) -> None:
    """Large rows of a single lookup are its answer as they are; others are copied."""
    rows = pa.record_batch([["x" * length, "y" * length]], SCHEMA.columns)
    both = np.array([0, 1], np.int32)
    result = QueryResult.of_rows(2, FetchedRows(both, rows), age_ms=0)

    (whole,) = result.answers(both, both, ("name",))
    (turned,) = result.answers(both, both[::-1], ("name",))

    assert (whole.rows, turned.rows) == (rows, rows.take([1, 0]))
    data = rows["name"].buffers()[2].address
    assert whole.rows is not None
    assert (whole.rows["name"].buffers()[2].address != data) is is_copied
