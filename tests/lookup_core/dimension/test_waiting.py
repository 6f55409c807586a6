"""Waiting lookups: deadlines, leavers, the admission limit, schema changes, event time."""

import pytest

from lookup_core.deadlines import Deadlines
from lookup_core.errors import ErrorCode, Overloaded
from tests.lookup_core.dimension.scenario import (
    FAULTY,
    NOTHING,
    Order,
    Result,
    Scenario,
    ended,
    settings,
)


def test_each_waiter_has_its_deadline(scenario: Scenario) -> None:
    """A lookup ends at its deadline; the query keeps its whole timeout for the other waiters."""
    scenario.look_up(1, 7, deadline=1.0)
    batch = scenario.query(2, 7, deadline=3.0)
    scenario.now = 0.999
    assert scenario.expire() == NOTHING
    scenario.now = 1.0

    assert scenario.expire() == ended(1, "timeout timeout")
    assert scenario.expire() == NOTHING
    scenario.look_up(3, 7, deadline=9.0)
    assert scenario.land(batch, {7: "Ada"}) == Result(
        {2: {0: "fetched Ada"}, 3: {0: "fetched Ada"}}, ended=[2, 3]
    )


def test_timeout_is_not_missing(scenario: Scenario) -> None:
    """Only open keys time out; a key that timed out is queried again by the next lookup."""
    first, second = scenario.query(1, 7), scenario.query(2, 7, 8, deadline=1.0)
    scenario.land(first, {7: "Ada"})
    scenario.now = 1.0

    assert scenario.expire() == Result({2: {1: "timeout timeout"}}, ended=[2], cancelled=[second])
    assert scenario.look_up(3, 7, 8) == {0: "hit Ada"}
    assert scenario.fail(scenario.resend(), ErrorCode.TIMEOUT).answers == {
        3: {1: "timeout timeout"}
    }
    assert scenario.look_up(4, 8) == {}
    assert scenario.outcomes == {"fetched": 2, "hit": 1, "timeout": 2}


def test_deadlines_take_little_memory() -> None:
    """A deadline that is discarded long before its time takes no memory; the order stays."""
    deadlines: Deadlines[int] = Deadlines()
    for name, due_at in enumerate((3.0, 1.0, 2.0)):
        deadlines.add(name, due_at)
    for name in range(3, 1000):
        deadlines.add(name, 3600.0)
        deadlines.discard(name)
        deadlines.check_invariants()

    assert [deadlines.pop_due(9.0) for _ in range(4)] == [1, 2, 0, None]


def test_leaver_harms_no_other(scenario: Scenario) -> None:
    """If a caller leaves, the query continues for the others; leaving again has no effect."""
    batch = scenario.query(1, 7)
    scenario.look_up(2, 7)

    assert scenario.leave(1) == NOTHING
    assert scenario.land(batch, {7: "Ada"}) == ended(2, "fetched Ada")
    assert [scenario.leave(lookup) for lookup in (1, 2, 99)] == [NOTHING] * 3


def test_last_leaver_cancels_the_query(scenario: Scenario) -> None:
    """Without waiters a query is cancelled; its rows and errors are ignored, new lookups query."""
    batch = scenario.query(1, 7)
    scenario.look_up(2, 7)
    scenario.leave(1)

    assert scenario.leave(2) == Result(cancelled=[batch])
    assert scenario.land(batch, {7: "Ada"}) == NOTHING
    assert scenario.fail(batch) == NOTHING
    assert scenario.look_up(3, 7) == {}
    assert scenario.send() == Order(2, [7])


def test_excess_keys_are_refused() -> None:
    """Beyond the limit a lookup is refused as a whole; cached rows are still answered."""
    scenario = Scenario(settings(max_waiting_keys=2))
    scenario.cache({7: "Ada"})
    batch = scenario.query(1, 8)
    before = scenario.statistics

    with pytest.raises(Overloaded) as caught:
        scenario.look_up(2, 7, 8, 9)

    assert (caught.value.code, caught.value.retry_after_s) == (ErrorCode.OVERLOADED, 1.0)
    assert caught.value.detail == "1 keys wait for customers; the limit is 2"
    assert scenario.statistics == before
    assert scenario.look_up(3, 7, 9) == {0: "hit Ada"}
    scenario.land(batch)
    assert scenario.look_up(4, 10) == {}


def test_queued_keys_need_room() -> None:
    """Queued keys without waiters count until they are more than a tenth of the limit."""
    scenario = Scenario(settings(max_waiting_keys=100, max_in_flight=1))
    stuck = scenario.query(1, 0)
    scenario.look_up(2, *range(100, 112))
    scenario.leave(2)  # 12 queued keys are not more than 2 * 1 waiting key + 10
    with pytest.raises(Overloaded):
        scenario.look_up(4, *range(200, 289))
    scenario.look_up(3, 200)
    scenario.leave(3)

    with pytest.raises(Overloaded):
        scenario.look_up(4, *range(200, 300))
    assert scenario.look_up(4, *range(200, 299)) == {}
    scenario.leave(4)
    scenario.land(stuck)
    assert scenario.send() is None


def test_dropped_keys_keep_turns() -> None:
    """Channels whose queued keys still have waiters keep those keys, and their turns."""
    scenario = Scenario(settings(max_waiting_keys=20, max_keys=4, max_in_flight=1))
    stuck = scenario.query(1, 0)
    scenario.look_up(2, *range(10, 13), channel=1)
    scenario.look_up(3, *range(20, 29), channel=2)
    scenario.look_up(4, 12, 23, channel=3)
    scenario.look_up(5, 30, channel=3)
    scenario.leave(2)
    scenario.leave(3)

    assert scenario.statistics.queued_keys == 3
    scenario.land(stuck)
    assert scenario.send_all() == [[12, 23, 30]]


def test_schema_change_ends_all_lookups() -> None:
    """All lookups fail, all queries and retries end, and no cached row replaces the error."""
    scenario = Scenario(settings(retries=1, if_error_s=60.0))
    scenario.cache({9: "Cora"})
    scenario.now = 30.0
    scenario.fail(scenario.query(1, 9))
    batch = scenario.query(2, 7)
    scenario.look_up(3, 7, 8)

    result = scenario.abandon(ErrorCode.TABLE_UNAVAILABLE)

    error = f"error {ErrorCode.TABLE_UNAVAILABLE}"
    answers = {1: {0: error}, 2: {0: error}, 3: {0: error, 1: error}}
    assert result == Result(answers, [1, 2, 3], [batch])
    scenario.now = 31.0
    assert (scenario.send(), scenario.look_up(4, 9)) == (None, {})
    assert scenario.land(batch, {7: "outdated"}) == NOTHING


@pytest.fixture
def ahead() -> Scenario:
    """A dimension whose lookups wait for at most 5 s; none waits yet."""
    return Scenario(settings(wait_s=5.0))


def test_records_ahead_of_the_watermark_wait(ahead: Scenario) -> None:
    """A lookup waits if its records are not older than the watermark."""
    ahead.advance(1000)
    for lookup, at_ms in ((1, 999), (2, 1000), (3, None)):
        ahead.look_up(lookup, lookup, at_ms=at_ms)
    ahead.look_up(4, at_ms=1000)

    assert ahead.send_all() == [[1, 3]]
    at_once = Scenario()
    at_once.look_up(1, 7, at_ms=1000)
    assert at_once.send_all() == [[7]]


def test_watermark_releases_earlier_records(ahead: Scenario) -> None:
    """A watermark releases the lookups of earlier records, and never goes back."""
    ahead.look_up(1, 7, 8, at_ms=1000)
    ahead.look_up(2, 7, at_ms=2000)
    assert ahead.statistics.waiting_keys == 3

    assert [ahead.advance(at_ms) for at_ms in (900, 1000, 1001)] == [NOTHING] * 3
    batch = ahead.resend()
    assert ahead.advance(900) == NOTHING
    ahead.look_up(3, 9, at_ms=1000)
    assert ahead.send_all() == [[9]]
    assert ahead.land(batch, {7: "Ada"}) == ended(1, "fetched Ada", "missing")
    assert ahead.statistics.waiting_keys == 2


def test_change_releases_its_key_alone(ahead: Scenario) -> None:
    """A change releases its key in all lookups; all other keys wait for the watermark."""
    ahead.change(8)
    ahead.look_up(1, 7, 8, at_ms=1000)
    ahead.look_up(2, 9, 7, at_ms=1000)

    ahead.change()
    ahead.change(5)
    assert ahead.send_all() == []
    ahead.change(7, 5)
    batch = ahead.resend()
    ahead.change(7)
    released = ahead.land(batch, {7: "Ada"})
    assert released == Result({1: {0: "fetched Ada"}, 2: {1: "fetched Ada"}}, ended=[])
    ahead.advance(5000)
    last = ahead.resend()
    assert ahead.land(last) == Result({1: {1: "missing"}, 2: {0: "missing"}}, ended=[2, 1])


def test_cached_row_waits_for_the_watermark(ahead: Scenario) -> None:
    """A change does not release a key with a cached row: it may not be the last change."""
    ahead.cache({7: "Ada"})
    ahead.look_up(1, 7, FAULTY, 8, at_ms=1000)

    ahead.change(7, 8)
    assert ahead.send_all() == [[8]]
    result = ahead.advance(1001)
    assert result == Result({1: {1: "error type"}}, ended=[])
    assert ahead.send_all() == [[7]]


@pytest.mark.parametrize(("deadline", "until"), [(2.0, 1.75), (100.0, 6.0)])
def test_wait_ends_before_the_deadline(ahead: Scenario, deadline: float, until: float) -> None:
    """The wait ends after 5 s, or when three quarters of the lookup's time have passed."""
    ahead.cache({7: "Ada"})
    ahead.now = 1.0
    ahead.look_up(1, 7, deadline=deadline, at_ms=1000)

    assert ahead.next_deadline == until
    ahead.now = until - 0.01
    assert ahead.expire() == NOTHING
    ahead.now = until
    assert ahead.expire() == ended(1, "hit Ada")
    assert ahead.next_deadline is None


def test_held_keys_need_room() -> None:
    """Keys that wait for changes count towards the limit until they are answered."""
    ahead = Scenario(settings(wait_s=5.0, max_waiting_keys=3))
    ahead.look_up(1, 7, 8, at_ms=1000)
    for at_ms in (None, 1000):
        with pytest.raises(Overloaded) as caught:
            ahead.look_up(2, 9, 10, at_ms=at_ms)
    assert caught.value.detail == "2 keys wait for customers; the limit is 3"
    assert ahead.look_up(2, 9) == {}

    assert ahead.advance(1001) == NOTHING
    with pytest.raises(Overloaded):
        ahead.look_up(3, 10)
    assert ahead.land(ahead.resend()).ended == [1, 2]
    assert ahead.look_up(3, 10, 11, 12) == {}


def test_leaver_is_not_released(ahead: Scenario) -> None:
    """A lookup that leaves is not released, nor are its released keys queried."""
    for lookup in (1, 2, 3):
        ahead.look_up(lookup, 7, 8, at_ms=1000)
    ahead.change(8)

    for lookup in (1, 9):
        assert ahead.leave(lookup) == NOTHING

    batch = ahead.resend()
    assert ahead.leave(2) == NOTHING
    assert ahead.leave(3) == Result(cancelled=[batch])
    assert ahead.advance(1001) == NOTHING
    assert ahead.send_all() == []


def test_schema_change_ends_waits(ahead: Scenario) -> None:
    """A lookup that waits, or whose released keys are queried, ends with the error."""
    ahead.look_up(1, 7, 8, at_ms=1000)
    ahead.change(8)
    batch = ahead.resend()

    result = ahead.abandon(ErrorCode.SCHEMA_CHANGED)

    error = f"error {ErrorCode.SCHEMA_CHANGED}"
    assert result == Result({1: {0: error, 1: error}}, [1], [batch])
