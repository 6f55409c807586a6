"""Who waits for how long, who leaves, and when there is something to do next."""

import pytest

from lookup_core.answer import Outcome
from lookup_core.settings import BatchSettings, RetrySettings
from tests.lookup_core.dimension.dimension_script import (
    NOTHING,
    DimensionScript,
    Order,
    Seen,
    settings,
)

ONE_SLOT = settings(batch=BatchSettings(max_in_flight=1))
TWO_TRIES = settings(retry=RetrySettings(max_retries=1, initial_s=1.0))


@pytest.fixture
def script() -> DimensionScript:
    """A dimension without retries."""
    return DimensionScript()


# Deadlines


def test_each_waiter_has_its_own_deadline(script: DimensionScript) -> None:
    """Who waits less long times out alone; the query goes on for the others."""
    script.submit(1, 7, deadline=1.0)
    script.submit(2, 7, deadline=3.0)
    script.order()
    script.now = 1.0

    assert script.expire() == Seen({1: {0: "timeout timeout"}}, ended=[1])
    assert script.land(1, {7: "Ada"}) == Seen({2: {0: "fetched Ada"}}, ended=[2])


def test_deadline_is_reached_at_its_time(script: DimensionScript) -> None:
    """A lookup is alive before its deadline, and over at it."""
    script.submit(1, 7, deadline=1.0)
    script.order()
    script.now = 0.999

    assert script.expire() == NOTHING
    script.now = 1.0
    assert script.expire() == Seen({1: {0: "timeout timeout"}}, ended=[1], cancelled=[1])


def test_short_deadline_never_shortens_others() -> None:
    """A query has its full time, because somebody with more time may join it on the way."""
    script = DimensionScript(TWO_TRIES)
    script.submit(1, 7, deadline=0.1)
    script.order()  # the script asserts its 2 s
    script.submit(2, 7, deadline=30.0)
    script.now = 0.1

    assert script.expire() == Seen({1: {0: "timeout timeout"}}, ended=[1])
    script.now = 1.9
    assert script.land(1, {7: "Ada"}) == Seen({2: {0: "fetched Ada"}}, ended=[2])


def test_only_unanswered_keys_time_out(script: DimensionScript) -> None:
    """What was answered in time stays answered."""
    script.submit(1, 7, deadline=1.0)
    script.order()
    script.submit(2, 7, 8, deadline=1.0)
    script.order()
    script.land(1, {7: "Ada"})
    script.now = 1.0

    assert script.expire() == Seen({2: {1: "timeout timeout"}}, ended=[2], cancelled=[2])


def test_timeout_is_no_absence(script: DimensionScript) -> None:
    """A key that timed out is asked again by the next lookup."""
    script.submit(1, 7, deadline=1.0)
    script.order()
    script.now = 1.0
    script.expire()

    assert script.submit(2, 7) == {}
    assert script.order() == Order(2, [7])


def test_keys_that_never_got_a_turn_are_counted(script: DimensionScript) -> None:
    """What ran out of time before it could be submitted counts as timed out."""
    script.state.count_timed_out(3)

    outcomes = script.state.statistics().outcomes
    assert {word.label: count for word, count in outcomes.items() if count} == {"timeout": 3}


# Leaving


def test_leaver_harms_nobody(script: DimensionScript) -> None:
    """Who gives up leaves; the query goes on for those who stay."""
    script.submit(1, 7)
    script.submit(2, 7)
    script.order()

    assert script.leave(1) == NOTHING
    assert script.land(1, {7: "Ada"}) == Seen({2: {0: "fetched Ada"}}, ended=[2])


def test_last_leaver_cancels(script: DimensionScript) -> None:
    """When nobody waits any more the query is cancelled, and what it still brings is nothing."""
    script.submit(1, 7)
    script.submit(2, 7)
    script.order()
    script.leave(1)

    assert script.leave(2) == Seen(cancelled=[1])
    assert script.land(1, {7: "Ada"}) == NOTHING
    assert script.fail(1) == NOTHING
    assert script.submit(3, 7) == {}


def test_newcomer_after_desertion_starts_afresh(script: DimensionScript) -> None:
    """A flight that was given up takes no newcomer, who gets a query of his own."""
    script.submit(1, 7)
    script.order()
    script.leave(1)
    script.submit(2, 7)

    assert script.order() == Order(2, [7])
    assert script.land(2, {7: "Ada"}) == Seen({2: {0: "fetched Ada"}}, ended=[2])


def test_deserted_key_never_leaves_the_queue() -> None:
    """A key that nobody waits for when its turn comes is not asked."""
    script = DimensionScript(ONE_SLOT)
    script.submit(1, 7)
    script.order()
    script.submit(2, 8, 9)
    script.submit(3, 9)

    assert script.leave(2) == NOTHING
    script.land(1, {})
    assert script.order() == Order(2, [9])


def test_leaving_twice_is_harmless(script: DimensionScript) -> None:
    """Leaving again, or after the end, changes nothing."""
    script.submit(1, 7)
    script.order()
    script.land(1, {7: "Ada"})

    assert script.leave(1) == NOTHING
    assert script.leave(99) == NOTHING


def test_deserted_key_is_not_kept(script: DimensionScript) -> None:
    """Invalidated after its waiter left, a key of a query that goes on must not be cached."""
    script.submit(1, 7)
    script.submit(2, 8)
    script.order()  # one query for both
    script.leave(1)  # it goes on for key 8
    script.invalidate(7)  # key 7 changes while it is read

    script.land(1, {7: "stale", 8: "Bert"})

    assert script.submit(3, 7, 8) == {1: "hit Bert"}


# The next deadline


def test_idle_state_waits_for_nothing(script: DimensionScript) -> None:
    """Without lookups there is nothing to wake up for."""
    assert script.state.next_deadline() is None


def test_due_batch_is_the_next_deadline(script: DimensionScript) -> None:
    """A batch that may go now asks to be sent now."""
    script.now = 3.0
    script.submit(1, 7)

    assert script.state.next_deadline() == 3.0


def test_sent_query_waits_for_the_first_deadline(script: DimensionScript) -> None:
    """While all is at the backend only a waiter's deadline is ahead; the first one counts."""
    script.submit(1, 7, deadline=5.0)
    script.submit(2, 7, deadline=4.0)
    script.order()

    assert script.state.next_deadline() == 4.0
    script.leave(2)
    assert script.state.next_deadline() == 5.0


def test_busy_slots_hide_the_queue() -> None:
    """A batch that is due but has no slot wakes nobody up; the end of a query will."""
    script = DimensionScript(ONE_SLOT)
    script.submit(1, 7, deadline=5.0)
    script.order()
    script.submit(2, 8, deadline=6.0)

    assert script.state.next_deadline() == 5.0
    script.land(1, {})
    assert script.state.next_deadline() == 0.0


def test_retry_is_the_next_deadline() -> None:
    """A parked query wakes up for its next try, or for its waiters if that is earlier."""
    script = DimensionScript(TWO_TRIES)
    script.submit(1, 7, deadline=5.0)
    script.submit(2, 7, deadline=0.5)
    script.order()
    script.fail(1)

    assert script.state.next_deadline() == 0.5
    script.leave(2)
    assert script.state.next_deadline() == 1.0


def test_keys_that_were_never_asked_are_counted(script: DimensionScript) -> None:
    """Who had to wait too long for the turn of a lookup had a timeout like any other."""
    script.state.count_timed_out(3)

    outcomes = script.state.statistics().outcomes
    assert {outcome: count for outcome, count in outcomes.items() if count} == {Outcome.TIMEOUT: 3}
