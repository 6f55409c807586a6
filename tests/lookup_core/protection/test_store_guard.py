"""What protects a store, together: which failures tell of it, and what follows."""

import pytest

from lookup_core.errors import ErrorCode
from lookup_core.protection.backend_guard import BackendGuard
from lookup_core.protection.circuit_breaker import BreakerState

OF_THE_STORE = {
    ErrorCode.TIMEOUT,
    ErrorCode.BACKEND_UNAVAILABLE,
    ErrorCode.BACKEND_AUTH,
    ErrorCode.CONNECTION_LOST,
}


def failing(code: ErrorCode, times: int = 3) -> BackendGuard:
    """A guard whose store has failed so, in queries one after the other."""
    guard = BackendGuard(10)
    for now in range(times):
        guard.on_failure(code, sent_at=float(now), now=now + 0.5)
    return guard


@pytest.mark.parametrize("code", ErrorCode)
def test_only_the_stores_own_failures_open_it(code: ErrorCode) -> None:
    """A store that refuses a question lives; a key that is bad is no trouble of the store."""
    assert failing(code).is_open is (code in OF_THE_STORE)


@pytest.mark.parametrize(
    ("failures", "told"),
    [
        ([], ErrorCode.TIMEOUT),
        ([ErrorCode.BACKEND_AUTH] * 2, ErrorCode.TIMEOUT),
        ([ErrorCode.BACKEND_AUTH] * 3, ErrorCode.BACKEND_AUTH),
        ([ErrorCode.TIMEOUT] * 3, ErrorCode.BACKEND_UNAVAILABLE),
        ([ErrorCode.CONNECTION_LOST] * 3, ErrorCode.BACKEND_UNAVAILABLE),
    ],
)
def test_late_ones_hear_what_is_wrong(failures: list[ErrorCode], told: ErrorCode) -> None:
    """A login that is refused is no store that cannot be reached: who mends it is another one."""
    guard = BackendGuard(10)
    for code in failures:
        guard.on_failure(code, sent_at=0.0, now=0.0)

    assert guard.late_code is told


def test_probe_finds_another_cause() -> None:
    """A store that comes back and refuses the login is no more away; then, it is mended."""
    guard, told = failing(ErrorCode.BACKEND_UNAVAILABLE), []
    for now, found in ((3.0, ErrorCode.BACKEND_AUTH), (4.0, None)):
        assert guard.start_probe_if_due(now)
        guard.on_probe(found, now=now, jitter=0.0)
        told.append(guard.late_code)

    assert told == [ErrorCode.BACKEND_AUTH, ErrorCode.TIMEOUT]


def test_refusals_are_signs_of_life() -> None:
    """An answer of any kind begins the count of failures anew; a defect of ours does not."""
    guard, states = failing(ErrorCode.TIMEOUT, 2), []
    for code in (ErrorCode.KEY_REJECTED, *[ErrorCode.TIMEOUT] * 2, ErrorCode.INTERNAL):
        guard.on_failure(code, sent_at=3.0, now=3.0)
        states.append(guard.breaker_state)

    guard.on_failure(ErrorCode.TIMEOUT, sent_at=4.0, now=4.0)

    assert states == [BreakerState.CLOSED] * 4
    assert guard.breaker_state is BreakerState.OPEN


def test_slots_are_those_of_the_limit() -> None:
    """As many queries as the limit says; none while the breaker is open."""
    guard = BackendGuard(2)

    assert (guard.has_slot(1), guard.has_slot(2)) == (True, False)
    assert not failing(ErrorCode.BACKEND_UNAVAILABLE).has_slot(0)


def test_timeouts_lower_the_limit() -> None:
    """A store that is slow gets fewer queries; one that is away gets none, and keeps its limit."""
    assert failing(ErrorCode.TIMEOUT, 1).limit == 7
    assert failing(ErrorCode.BACKEND_UNAVAILABLE, 1).limit == 10


def test_success_is_told_to_all() -> None:
    """Rows raise the limit again and count as a sign of life."""
    guard = failing(ErrorCode.TIMEOUT, 1)
    for _ in range(30):
        guard.on_success(5.0, 5.01, in_flight=guard.limit)

    assert guard.limit > 7


def test_retries_are_earned() -> None:
    """Ten at first; each five queries one more."""
    guard = BackendGuard(8)
    taken = [guard.take_retry(0.0) for _ in range(11)]
    for _ in range(5):
        guard.on_sent(0.0)

    assert taken == [True] * 10 + [False]
    assert guard.take_retry(0.0)


def test_probe_starts_when_due() -> None:
    """No probe while the breaker is closed; then each one at its time, and once."""
    assert not BackendGuard(1).start_probe_if_due(1e9)
    guard = failing(ErrorCode.BACKEND_UNAVAILABLE)
    due_at = guard.next_probe_at()
    assert due_at is not None

    assert not guard.start_probe_if_due(due_at - 0.01)
    assert guard.start_probe_if_due(due_at)
    assert not guard.start_probe_if_due(due_at)
    assert guard.next_probe_at() is None


def test_probes_go_on_until_one_is_answered() -> None:
    """A probe that fails is followed by another, one that is answered by queries."""
    guard, states = failing(ErrorCode.BACKEND_UNAVAILABLE), []
    for now, error in ((10.0, ErrorCode.TIMEOUT), (20.0, None)):
        assert guard.start_probe_if_due(now)
        guard.on_probe(error, now=now, jitter=0.5)
        states.append(guard.breaker_state)

    assert states == [BreakerState.OPEN, BreakerState.CLOSED]
    guard.check_invariants()
