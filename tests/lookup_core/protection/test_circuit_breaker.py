"""When a store is asked no more, and how it is found to be back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_core.errors import ErrorCode
from lookup_core.protection.circuit_breaker import BreakerState, CircuitBreaker

AWAY = ErrorCode.UPSTREAM_UNAVAILABLE


def opened(code: ErrorCode = AWAY) -> CircuitBreaker:
    """A breaker that opened at 0 s; the first probe is due at 0.1 s."""
    breaker = CircuitBreaker()
    for _ in range(3):
        breaker.on_failure(code, 0.0)
    return breaker


def pauses(code: ErrorCode, count: int) -> list[float]:
    """How long each of several failed probes is followed by nothing, without jitter."""
    breaker, now, found = opened(code), 0.0, []
    for _ in range(count):
        due_at = breaker.probe_due_at()
        assert due_at is not None
        found.append(round(due_at - now, 6))
        now = due_at
        breaker.start_probe(now)
        breaker.on_probe_failure(code, now, 1.0)
    return found


def test_three_failures_in_a_row_open_it() -> None:
    """Two failures may be chance; a success between them begins the count anew."""
    breaker = CircuitBreaker()
    states = []
    for is_success in (False, False, True, False, False, False):
        breaker.on_success(0.0) if is_success else breaker.on_failure(AWAY, 0.0)
        states.append(breaker.state)

    assert states == [BreakerState.CLOSED] * 5 + [BreakerState.OPEN]
    assert not breaker.allows_query


def test_half_of_many_failing_opens_it() -> None:
    """A store that fails every other query is in trouble, although never in a row."""
    breaker = CircuitBreaker()
    for _ in range(5):
        breaker.on_success(0.0)
        assert breaker.allows_query
        breaker.on_failure(AWAY, 0.0)

    assert breaker.state is BreakerState.OPEN


def test_probes_come_in_growing_pauses() -> None:
    """The first probe is soon, later ones at most half a second apart."""
    assert pauses(AWAY, 5) == [0.1, 0.2, 0.4, 0.5, 0.5]


def test_refused_logins_pause_for_longer() -> None:
    """A server that refuses the login is asked every 30 s at last: it may lock the role out."""
    assert pauses(ErrorCode.UPSTREAM_AUTH, 11)[-2:] == [30.0, 30.0]


def test_jitter_shortens_pauses_by_half_at_most() -> None:
    """Sidecars that lost the same store do not all come at once."""
    breaker = opened()
    breaker.start_probe(0.1)
    breaker.on_probe_failure(AWAY, 1.0, 0.0)

    assert breaker.probe_due_at() == 1.1


def test_probe_under_way_is_the_only_one() -> None:
    """While a probe is under way no other is due, and still no query goes."""
    breaker = opened()
    breaker.start_probe(0.1)

    assert breaker.state is BreakerState.HALF_OPEN
    assert breaker.probe_due_at() is None
    assert not breaker.allows_query


def test_answered_probe_closes_it() -> None:
    """After a sign of life it takes three failures again."""
    breaker = opened()
    breaker.start_probe(0.1)
    breaker.on_probe_success(0.2)
    breaker.on_failure(AWAY, 0.3)
    breaker.on_failure(AWAY, 0.3)

    assert breaker.state is BreakerState.CLOSED


def test_late_answer_closes_it() -> None:
    """A query that was sent before shows that the store lives; a late failure shows nothing new."""
    breaker = opened()
    breaker.on_failure(AWAY, 5.0)
    assert breaker.probe_due_at() == 0.1

    breaker.on_success(5.0)

    assert breaker.allows_query


def test_probe_that_comes_too_late_is_harmless() -> None:
    """A probe that fails after a query has closed the breaker does not open it."""
    breaker = opened()
    breaker.start_probe(0.1)
    breaker.on_success(0.2)
    breaker.on_probe_failure(AWAY, 0.3, 0.0)

    assert breaker.allows_query


@pytest.mark.parametrize("state", BreakerState)
def test_labels_are_lower_case(state: BreakerState) -> None:
    """People read words; the metric has the number."""
    assert state.label == state.name.lower()


@given(st.lists(st.sampled_from(["success", "failure", "probe", "answer", "silence"])))
def test_open_breaker_always_has_a_way_back(events: list[str]) -> None:
    """Whatever happens, it is closed, or a probe is due or under way."""
    breaker = CircuitBreaker()
    for now, event in enumerate(events):
        if event == "success":
            breaker.on_success(float(now))
        elif event == "failure":
            breaker.on_failure(AWAY, float(now))
        elif event == "probe" and (breaker.probe_due_at() or now + 1) <= now:
            breaker.start_probe(float(now))
        elif event == "answer" and breaker.state is BreakerState.HALF_OPEN:
            breaker.on_probe_success(float(now))
        elif event == "silence":
            breaker.on_probe_failure(AWAY, float(now), 0.5)
        breaker.check_invariants()
        assert breaker.allows_query == (breaker.state is BreakerState.CLOSED)
