"""Rows that come later than their records: keys without a row are asked again."""

from dataclasses import replace

import pytest

from lookup_core.dimension.explanation import KeyState
from lookup_core.errors import ErrorCode
from lookup_core.settings import (
    BatchSettings,
    CacheMode,
    DimensionSettings,
    OnMissingSettings,
    RetrySettings,
)
from tests.lookup_core.dimension.dimension_script import (
    NOTHING,
    DimensionScript,
    Order,
    Seen,
    settings,
)


def asking_again(
    max_retries: int = 2, *, failures: int = 0, batch: BatchSettings | None = None
) -> DimensionSettings:
    """Missing keys are asked again after 2 s, failed queries after 1 s."""
    on_missing = OnMissingSettings(max_retries=max_retries, delay_s=2.0)
    retry = RetrySettings(max_retries=failures, initial_s=1.0, on_missing=on_missing)
    return settings(retry=retry, batch=batch)


@pytest.fixture
def script() -> DimensionScript:
    """A dimension that asks three times, at 0, 2 and 4 s."""
    return DimensionScript(asking_again())


def test_late_row_is_found(script: DimensionScript) -> None:
    """A row that comes after its record was asked for is the record's row."""
    script.submit(1, 7)
    script.order()

    assert script.land(1, {}) == NOTHING  # not there yet
    assert script.state.next_deadline() == 2.0
    script.now = 1.999
    assert script.order() is None
    script.now = 2.0
    assert script.order() == Order(2, [7])
    assert script.land(2, {7: "Ada"}) == Seen({1: {0: "fetched Ada"}}, ended=[1])
    assert script.submit(2, 7) == {0: "hit Ada"}


def test_absence_is_told_after_the_last_try(script: DimensionScript) -> None:
    """A row that never comes is missing after all tries: one more than the retries."""
    script.submit(1, 7)
    for attempt, now in enumerate((0.0, 2.0), start=1):
        script.now = now
        assert script.order() == Order(attempt, [7])
        assert script.land(attempt, {}) == NOTHING
    script.now = 4.0
    script.order()

    assert script.land(3, {}) == Seen({1: {0: "missing"}}, ended=[1])
    assert script.submit(2, 7) == {0: "missing"}  # kept from the last try on
    assert script.state.statistics().retries == 2
    assert script.state.next_deadline() is None


def test_cached_absence_answers_at_once() -> None:
    """While an absence is kept nobody waits for the row; afterwards all tries are made anew."""
    script = DimensionScript(asking_again(1))
    script.submit(1, 7)
    script.order()
    script.land(1, {})
    script.now = 2.0
    script.order()
    script.land(2, {})

    assert script.submit(2, 7) == {0: "missing"}
    script.now = 7.0  # the negative time to live, since the last try
    assert script.submit(3, 7) == {}
    assert script.order() == Order(3, [7])
    assert script.land(3, {}) == NOTHING


def test_neighbours_of_a_missing_key_are_answered(script: DimensionScript) -> None:
    """Only keys without a row wait; rows and ambiguous keys of the same query come at once."""
    script.submit(1, 7, 8, 9)
    script.submit(2, 8)
    script.order()

    assert script.land(1, {7: "Ada", 9: ["Cora", "Cleo"]}) == Seen(
        {1: {0: "fetched Ada", 2: "error ambiguous"}}
    )
    script.now = 2.0
    assert script.order() == Order(2, [8])
    assert script.land(2, {8: "Bert"}) == Seen(
        {1: {1: "fetched Bert"}, 2: {0: "fetched Bert"}}, ended=[1, 2]
    )


def test_absence_is_not_kept_before_the_last_try(script: DimensionScript) -> None:
    """While the row may still come nobody is told from the cache that there is none."""
    script.submit(1, 7, deadline=2.0)  # gone before the next try
    script.order()

    assert script.land(1, {}) == Seen({1: {0: "missing"}}, ended=[1])
    assert script.submit(2, 7) == {}
    assert script.order() == Order(2, [7])


# Who waits


@pytest.mark.parametrize(("deadline", "seen"), [(2.0, {0: "missing"}), (2.001, None)])
def test_nobody_waits_in_vain(
    script: DimensionScript, deadline: float, seen: dict[int, str] | None
) -> None:
    """Whose time ends before the next try is told `missing` now, instead of a timeout then."""
    script.submit(1, 7, deadline=deadline)
    script.order()

    expected = NOTHING if seen is None else Seen({1: seen}, ended=[1])
    assert script.land(1, {}) == expected
    assert (script.state.next_deadline() is None) is bool(seen)


def test_patient_wait_on_without_the_hurried(script: DimensionScript) -> None:
    """Of those who wait for a key some have the time for another try, and the flight is theirs."""
    script.submit(1, 7, 8, deadline=1.0)
    script.submit(2, 7, deadline=30.0)
    script.order()

    assert script.land(1, {8: "Bert"}) == Seen({1: {0: "missing", 1: "fetched Bert"}}, ended=[1])
    script.now = 2.0
    assert script.order() == Order(2, [7])
    assert script.land(2, {7: "Ada"}) == Seen({2: {0: "fetched Ada"}}, ended=[2])


def test_answered_key_of_a_hurried_lookup_is_closed() -> None:
    """Told `missing` of one key, a lookup that waits for another does not hear of it again."""
    script = DimensionScript(asking_again(batch=BatchSettings(max_keys=1)))
    script.submit(1, 7, 8, deadline=1.0)
    script.submit(2, 7, deadline=30.0)
    script.order()  # key 7
    script.order()  # key 8

    assert script.land(1, {}) == Seen({1: {0: "missing"}})  # 8 is still on its way
    assert script.leave(2) == NOTHING  # nobody waits for key 7 now
    script.now = 1.0
    assert script.expire() == Seen({1: {1: "timeout timeout"}}, ended=[1], cancelled=[2])
    assert script.order() is None


def test_newcomer_joins_a_parked_key(script: DimensionScript) -> None:
    """Who asks for a key that waits for its next try, and has the time, waits for it, too."""
    script.submit(1, 7)
    script.order()
    script.land(1, {})
    script.now = 1.0
    script.submit(2, 7, deadline=2.5)

    assert script.order() is None
    script.now = 2.0
    script.order()
    assert script.land(2, {7: "Ada"}) == Seen(
        {1: {0: "fetched Ada"}, 2: {0: "fetched Ada"}}, ended=[1, 2]
    )


def test_hurried_newcomer_asks_at_once(script: DimensionScript) -> None:
    """Who cannot wait for the next try of a parked key has it asked now; the others wait on."""
    script.submit(1, 7, deadline=30.0)
    script.order()
    script.land(1, {})
    script.now = 1.0
    script.submit(2, 7, deadline=2.0)

    assert script.order() == Order(3, [7])
    assert script.land(3, {}) == Seen({2: {0: "missing"}}, ended=[2])
    script.now = 2.0
    assert script.order() == Order(2, [7])
    assert script.land(2, {7: "Ada"}) == Seen({1: {0: "fetched Ada"}}, ended=[1])


def test_delays_are_never_shared(script: DimensionScript) -> None:
    """Keys of one query wait together, keys of another one have their own time."""
    script.submit(1, 7, 8)
    script.order()
    script.submit(2, 9)
    script.order()
    script.land(1, {})
    script.now = 0.5
    script.land(2, {})

    script.now = 2.0
    assert [script.order(), script.order()] == [Order(3, [7, 8]), None]
    script.now = 2.5
    assert script.order() == Order(4, [9])


# Slots, time and leaving


def test_parked_keys_hold_no_slot() -> None:
    """While keys wait for their next try, others use the slot."""
    script = DimensionScript(asking_again(batch=BatchSettings(max_in_flight=1)))
    script.submit(1, 7)
    script.order()
    script.land(1, {})
    script.submit(2, 8)

    assert script.order() == Order(3, [8])
    script.now = 2.0
    assert script.order() is None  # due, but the slot is taken
    script.land(3, {8: "Bert"})
    assert script.order() == Order(2, [7])


def test_timeout_frees_a_parked_key() -> None:
    """The time covers all tries: when it is over nothing is left, and late rows reach nobody."""
    script = DimensionScript(asking_again(batch=BatchSettings(max_in_flight=1)))
    script.submit(1, 7, deadline=2.5)
    script.order()
    script.land(1, {})
    script.submit(2, 8, deadline=9.0)
    script.order()  # takes the slot beyond the next try
    script.now = 2.5

    assert script.expire() == Seen({1: {0: "timeout timeout"}}, ended=[1])
    script.land(3, {8: "Bert"})
    statistics = script.state.statistics()
    assert (statistics.waiting_keys, statistics.queued_keys) == (0, 0)
    assert (statistics.queries_in_flight, script.state.next_deadline()) == (0, None)
    assert script.land(1, {7: "late"}) == NOTHING


def test_timeout_of_a_retry_is_no_absence(script: DimensionScript) -> None:
    """A try that does not come back in time is a timeout, although an earlier one found nothing."""
    script.submit(1, 7, deadline=3.0)
    script.order()
    script.land(1, {})
    script.now = 2.0
    script.order()
    script.now = 3.0

    assert script.expire() == Seen({1: {0: "timeout timeout"}}, ended=[1], cancelled=[2])
    assert script.land(2, {7: "late"}) == NOTHING
    assert script.submit(2, 7) == {}


def test_deserted_parked_key_is_dropped(script: DimensionScript) -> None:
    """A key that nobody waits for is not asked again; there is nothing to cancel."""
    script.submit(1, 7)
    script.order()
    script.land(1, {})

    assert script.leave(1) == NOTHING
    assert script.state.next_deadline() is None
    script.now = 2.0
    assert script.order() is None


# Errors


def test_error_of_a_retry_is_an_error(script: DimensionScript) -> None:
    """That a row was missing before does not make an absence of an error."""
    script.submit(1, 7)
    script.order()
    script.land(1, {})
    script.now = 2.0
    script.order()

    assert script.fail(2) == Seen({1: {0: "error backend_unavailable"}}, ended=[1])
    assert script.submit(2, 7) == {}


def test_tries_are_counted_apart() -> None:
    """Failures use up no try for late rows, and absences none for failures."""
    script = DimensionScript(asking_again(1, failures=1))
    script.submit(1, 7)
    story = []
    for is_failure in (False, True, False):
        order = script.order()
        assert order is not None
        story.append(order.batch)
        seen = script.fail(order.batch) if is_failure else script.land(order.batch, {})
        script.now += 2.0

    # asked, parked as missing, failed, parked as failed, asked for the last time
    assert story == [1, 2, 2]
    assert seen == Seen({1: {0: "missing"}}, ended=[1])
    assert script.state.statistics().retries == 2


def test_second_failure_is_told() -> None:
    """The tries for failures are not counted anew because a row was missing in between."""
    script = DimensionScript(asking_again(1, failures=1))
    script.submit(1, 7)
    script.order()
    assert script.fail(1) == NOTHING
    script.now = 1.0
    script.order()
    assert script.land(1, {}) == NOTHING
    script.now = 3.0
    script.order()

    assert script.fail(2, ErrorCode.TIMEOUT) == Seen({1: {0: "timeout timeout"}}, ended=[1])


# Invalidation


def test_change_of_a_parked_key_is_read_at_once(script: DimensionScript) -> None:
    """Who asks after a change does not wait out a delay that began before it."""
    script.submit(1, 7)
    script.order()
    script.land(1, {})
    script.invalidate(7)
    script.submit(2, 7)

    assert script.order() == Order(3, [7])
    assert script.land(3, {7: "Ada"}) == Seen({2: {0: "fetched Ada"}}, ended=[2])
    script.now = 2.0
    assert script.order() == Order(2, [7])
    assert script.land(2, {7: "Ada"}) == Seen({1: {0: "fetched Ada"}}, ended=[1])


def test_overtaken_key_may_still_be_missing(script: DimensionScript) -> None:
    """Invalidated while it is read, a key without a row is asked again, and not kept."""
    script.submit(1, 7)
    script.order()
    script.invalidate(7)

    assert script.land(1, {}) == NOTHING
    script.now = 2.0
    assert script.order() == Order(2, [7])
    assert script.land(2, {7: "Ada"}) == Seen({1: {0: "fetched Ada"}}, ended=[1])
    assert script.submit(2, 7) == {}


# Without a cache, and what people see


def test_mode_none_asks_again_too() -> None:
    """Late rows have nothing to do with what is kept."""
    script = DimensionScript(replace(asking_again(), cache=settings(mode=CacheMode.NONE).cache))
    script.submit(1, 7)
    script.order()

    assert script.land(1, {}) == NOTHING
    script.now = 2.0
    script.order()
    assert script.land(2, {7: "Ada"}) == Seen({1: {0: "fetched Ada"}}, ended=[1])


def test_parked_key_is_explained(script: DimensionScript) -> None:
    """Whoever wonders about a key that waits for its row is told until when."""
    script.submit(1, 7)
    script.order()
    script.land(1, {})
    script.now = 0.5

    (explanation,) = script.explain(7)

    assert (explanation.state, explanation.retry_in_ms) == (KeyState.IN_FLIGHT, 1500)
    assert explanation.reason.startswith("parked until the next try, because no row was found")


def test_retries_do_not_count_as_answers(script: DimensionScript) -> None:
    """A key counts once, with the outcome that it has in the end."""
    script.submit(1, 7)
    script.order()
    script.land(1, {})
    script.now = 2.0
    script.order()
    script.land(2, {7: "Ada"})

    outcomes = script.state.statistics().outcomes
    assert {word.label: count for word, count in outcomes.items() if count} == {"fetched": 1}
