"""Waiting lookups: deadlines, leavers, the admission limit, schema changes, event time."""

import numpy as np
import pytest

from lookup_core.changelog.change_decoder import TableChange
from lookup_core.deadlines import Deadlines
from lookup_core.dimension.flight_table import LookupId
from lookup_core.dimension.watermark_wait import Released, WatermarkWait
from lookup_core.errors import ErrorCode, Overloaded
from tests.lookup_core.dimension.scenario import (
    FAULTY,
    NOTHING,
    Order,
    Result,
    Scenario,
    ended,
    request,
    row_changes,
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


def test_earliest_deadline_ends_first(scenario: Scenario) -> None:
    """Lookups end by deadline, then by number; their query is cancelled with the last one."""
    batch = scenario.query(1, 7, deadline=5.0)
    for lookup, deadline in ((4, 3.0), (3, 4.0), (2, 4.0)):
        scenario.look_up(lookup, 7, deadline=deadline)
    scenario.look_up(5, 8, deadline=5.001)
    scenario.now = 5.0

    result = scenario.expire()

    assert (result.ended, result.cancelled) == ([4, 2, 3, 1], [batch])
    assert scenario.statistics.waiting_keys == 1


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
    scenario.state.count_timed_out(3)  # keys that were never submitted
    assert scenario.outcomes == {"fetched": 2, "hit": 1, "timeout": 5}


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


def test_abandoned_key_is_not_cached(scenario: Scenario) -> None:
    """A key whose waiter left is not cached, as an invalidation could not reach it."""
    scenario.look_up(1, 7)
    scenario.look_up(2, 8)
    batch = scenario.resend()
    scenario.leave(1)
    scenario.invalidate(7)

    scenario.land(batch, {7: "outdated", 8: "Bert"})

    assert scenario.look_up(3, 7, 8) == {1: "hit Bert"}


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
    scenario.state.check_room(1)


def test_queued_keys_need_room() -> None:
    """Queued keys without waiters count until they are more than a tenth of the limit."""
    scenario = Scenario(settings(max_waiting_keys=100, max_in_flight=1))
    stuck = scenario.query(1, 0)
    scenario.look_up(2, *range(100, 112))
    scenario.leave(2)  # 12 queued keys are not more than 2 * 1 waiting key + 10
    with pytest.raises(Overloaded):
        scenario.state.check_room(89)
    scenario.look_up(3, 200)
    scenario.leave(3)

    scenario.state.check_room(99)
    with pytest.raises(Overloaded):
        scenario.state.check_room(100)
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


class Wait(Scenario):
    """A dimension whose lookups wait for at most 5 s."""

    def __init__(self, wait_s: float = 5.0) -> None:
        super().__init__(settings(wait_s=wait_s))

    @property
    def wait(self) -> WatermarkWait:
        """The lookups that wait."""
        return self.state.wait

    def hold(
        self, lookup: int, *keys: int | str, at_ms: int = 1000, deadline: float = 100.0
    ) -> None:
        """A lookup of records of this event time waits."""
        held = request(lookup, *keys, deadline=deadline, event_time_ms=at_ms)
        self.wait.hold(held, self.now)
        self.wait.check_invariants()

    def report(self, *keys: int) -> dict[int, list[int]]:
        """Changes of these keys are reported; the positions that they release by lookup."""
        return positions(self.wait.on_changes([row_changes(dict.fromkeys(keys))]))

    def advance(self, watermark_ms: int) -> dict[int, list[int]]:
        """The watermark of the dimension advances."""
        return positions(self.wait.on_watermark(watermark_ms))

    def is_ahead(self, *keys: int, at_ms: int | None = 1000) -> bool:
        """Whether a lookup of records of this event time has to wait."""
        return self.wait.is_ahead(request(1, *keys, event_time_ms=at_ms))


def positions(released: list[Released]) -> dict[int, list[int]]:
    """Positions by lookup."""
    return {each.lookup_id: each.positions.tolist() for each in released}


@pytest.fixture
def ahead() -> Wait:
    """No lookup waits yet."""
    return Wait()


def test_records_ahead_of_the_watermark_wait(ahead: Wait) -> None:
    """A lookup waits if its records are not older than the watermark."""
    ahead.advance(1000)

    assert [ahead.is_ahead(7, at_ms=at_ms) for at_ms in (999, 1000, None)] == [
        *(False, True, False),
    ]
    assert not ahead.is_ahead()
    assert not Wait(0.0).is_ahead(7)


def test_watermark_releases_earlier_records(ahead: Wait) -> None:
    """A watermark releases the lookups of earlier records, and never goes back."""
    ahead.hold(1, 7, 8, at_ms=1000)
    ahead.hold(2, 7, at_ms=2000)
    assert ahead.statistics.waiting_keys == 3

    assert [ahead.advance(at_ms) for at_ms in (900, 1000, 1001)] == [{}, {}, {1: [0, 1]}]
    assert ahead.advance(900) == {}
    assert not ahead.is_ahead(7, at_ms=1000)
    assert ahead.statistics.waiting_keys == 1


def test_change_releases_its_key_alone(ahead: Wait) -> None:
    """A change releases its key in all lookups; all other keys wait for the watermark."""
    assert ahead.report(8) == {}
    assert ahead.wait.on_changes(np.array([8], np.uint64)) == []
    ahead.hold(1, 7, 8)
    ahead.hold(2, 9, 7)

    assert positions(ahead.wait.on_changes([TableChange("truncated")])) == {}
    assert ahead.report(5) == {}
    assert ahead.report(7, 5) == {1: [0], 2: [1]}
    assert ahead.report(7) == {}
    assert ahead.advance(5000) == {1: [1], 2: [0]}


def test_cached_row_waits_for_the_watermark(ahead: Wait) -> None:
    """A change does not release a key with a cached row: it may not be the last change."""
    ahead.cache({7: "Ada"})
    ahead.hold(1, 7, FAULTY, 8)

    assert ahead.report(7, 8) == {1: [2]}
    assert ahead.advance(1001) == {1: [0, 1]}


@pytest.mark.parametrize(("deadline", "until"), [(2.0, 1.75), (100.0, 6.0)])
def test_wait_ends_before_the_deadline(ahead: Wait, deadline: float, until: float) -> None:
    """The wait ends after 5 s, or when three quarters of the lookup's time have passed."""
    ahead.now = 1.0
    ahead.hold(1, 7, deadline=deadline)

    assert ahead.wait.next_deadline() == until
    assert ahead.wait.expire(until - 0.01) == []
    assert positions(ahead.wait.expire(until)) == {1: [0]}
    assert ahead.wait.next_deadline() is None


def test_leaver_is_not_released(ahead: Wait) -> None:
    """A lookup that leaves is not released; unknown lookups have no effect."""
    for lookup in (1, 2, 3):
        ahead.hold(lookup, 7)

    for lookup in (1, 9):
        ahead.wait.leave(LookupId(lookup))

    assert ahead.report(7) == {2: [0], 3: [0]}
    ahead.hold(4, 7)
    assert positions(ahead.wait.release_all()) == {4: [0]}
