"""Protection of the backend: circuit breaker, concurrency limit, retry budget, quarantine."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lookup_core.errors import ErrorCode
from lookup_core.protection.backend_guard import (
    BackendGuard,
    ConcurrencyLimit,
    Quarantine,
)
from lookup_core.protection.circuit_breaker import BreakerState, CircuitBreaker

AWAY = ErrorCode.BACKEND_UNAVAILABLE
AUTH = ErrorCode.BACKEND_AUTH
OF_THE_BACKEND = {ErrorCode.TIMEOUT, AWAY, AUTH, ErrorCode.CONNECTION_LOST}
CLOSED, HALF_OPEN, OPEN = BreakerState.CLOSED, BreakerState.HALF_OPEN, BreakerState.OPEN


def opened(code: ErrorCode = AWAY) -> CircuitBreaker:
    """A breaker that opened at 0 s; the first probe is due at 0.1 s."""
    breaker = CircuitBreaker()
    for _ in range(3):
        breaker.on_failure(code, 0.0)
    return breaker


def states_after(results: str, breaker: CircuitBreaker | None = None) -> list[BreakerState]:
    """The state of a breaker after each of these successes (S) and failures (F)."""
    breaker, states = breaker or CircuitBreaker(), []
    for result in results:
        breaker.on_success() if result == "S" else breaker.on_failure(AWAY, 0.0)
        breaker.check_invariants()
        states.append(breaker.state)
    return states


def failing(code: ErrorCode, times: int = 3) -> BackendGuard:
    """A guard whose backend failed with this code, in one query after the other."""
    guard = BackendGuard(10)
    for now in range(times):
        guard.on_failure(code, sent_at=float(now), now=now + 0.5)
    return guard


@given(st.text("SF", max_size=60))
@example("FFSFFF")
@example("SFSFSFSFSF")
@example("SSSSSSSSSSFSSFSFSFSFSFSFSFSFSF")
def test_breaker_follows_the_last_results(results: str) -> None:
    """Three failures in a row open it, or half of the last 20 results if they are 10 or more."""

    def is_bad(seen: str) -> bool:
        latest = seen[-20:]
        is_half = len(latest) >= 10 and 2 * latest.count("F") >= len(latest)
        return seen.endswith("F") and (seen.endswith("FFF") or is_half)

    first = next((at for at in range(len(results)) if is_bad(results[: at + 1])), len(results))

    assert states_after(results[: first + 1]) == [CLOSED] * first + [OPEN] * (first < len(results))


@pytest.mark.parametrize("code", ErrorCode)
def test_only_backend_failures_open_it(code: ErrorCode) -> None:
    """A backend that rejects a query or a key is alive."""
    assert failing(code).is_open is (code in OF_THE_BACKEND)


@pytest.mark.parametrize(
    ("code", "pauses_s"),
    [(AWAY, [0.1, 0.2, 0.4, 0.5, 0.5]), (AUTH, [0.1 * 2**n for n in range(9)] + [30.0, 30.0])],
)
def test_probe_pauses_double(code: ErrorCode, pauses_s: list[float]) -> None:
    """Pauses between probes double up to 0.5 s, or to 30 s where the login is refused."""
    breaker, now, found = opened(code), 0.0, []
    for _ in pauses_s:
        due_at = breaker.probe_due_at()
        assert due_at is not None
        found.append(due_at - now)
        now = due_at
        breaker.start_probe(now)
        breaker.on_probe_failure(code, now, 1.0)

    assert found == pytest.approx(pauses_s)


@pytest.mark.parametrize(
    ("outage_s", "pause_s"), [(1.0, 0.5), (5.0, 0.5), (15.0, 1.5), (20.0, 2.0), (3600.0, 2.0)]
)
def test_long_outage_is_probed_less_often(outage_s: float, pause_s: float) -> None:
    """A pause is at most a tenth of the outage so far, within 0.5 s and 2 s."""
    breaker, now = opened(), 0.1
    while (due_at := breaker.probe_due_at()) is not None and due_at <= outage_s:
        breaker.start_probe(now := due_at)
        breaker.on_probe_failure(AWAY, now, 1.0)
    breaker.start_probe(outage_s + pause_s)

    breaker.on_probe_failure(AWAY, outage_s, 1.0)

    assert breaker.probe_due_at() == pytest.approx(outage_s + pause_s)


def test_good_probe_closes_the_breaker() -> None:
    """A failed probe gives the cause from then on; after a good one results count from zero."""
    guard, seen = failing(AWAY), []
    for now, error in ((10.0, AUTH), (20.0, None)):
        assert guard.start_probe_if_due(now)
        guard.on_probe(error, now=now, jitter=0.5)
        seen.append((guard.breaker.state, guard.late_code))
    assert seen == [(OPEN, AUTH), (CLOSED, ErrorCode.TIMEOUT)]

    breaker = opened()
    breaker.start_probe(0.1)
    breaker.on_probe_success()
    assert states_after("FFSFSFSFS", breaker) == [CLOSED] * 9


@pytest.mark.parametrize(
    ("failures", "code"),
    [
        ([], ErrorCode.TIMEOUT),
        ([AUTH] * 2, ErrorCode.TIMEOUT),
        ([AUTH] * 3, AUTH),
        ([ErrorCode.TIMEOUT] * 3, AWAY),
        ([ErrorCode.CONNECTION_LOST] * 3, AWAY),
    ],
)
def test_deadline_reports_the_cause(failures: list[ErrorCode], code: ErrorCode) -> None:
    """A lookup that ends during an outage reports a refused login, or an unreachable backend."""
    guard = BackendGuard(10)
    for each in failures:
        guard.on_failure(each, sent_at=0.0, now=0.0)

    assert guard.late_code is code


def lowered() -> ConcurrencyLimit:
    """A limit of 10 that was lowered to 7 at 1 s."""
    limit = ConcurrencyLimit(10)
    limit.on_overload(0.5, 1.0)
    return limit


@pytest.mark.parametrize(
    ("sent_at", "in_flight", "limits"),
    [
        (2.0, None, [7, 8, 9, 10, 10, 10]),  # all slots
        (2.0, 6, [7] * 6),
        (0.9, 10, [7] * 6),  # sent before the last decrease
    ],
)
def test_full_use_raises_the_limit(
    sent_at: float, in_flight: int | None, limits: list[int]
) -> None:
    """A round of queries in all slots raises it by about one, up to the maximum."""
    limit, rounds = lowered(), []
    for _ in limits:
        for _ in range(limit.limit):
            limit.on_success(sent_at, sent_at + 0.001, in_flight or limit.limit)
        rounds.append(limit.limit)

    assert rounds == limits


@pytest.mark.parametrize(
    ("alone_s", "seconds", "in_flight", "limit"),
    [
        (0.05, 0.149, 10, 10),
        (0.05, 0.151, 10, 7),
        (0.05, 0.151, 6, 7),
        (0.05, 2.0, 5, 10),
        (0.001, 0.099, 10, 10),
        (0.001, 0.101, 10, 7),
        (0.5, 0.9, 10, 10),
        (None, 2.0, 10, 10),
    ],
)
def test_slow_queries_lower_the_limit(
    alone_s: float | None, seconds: float, in_flight: int, limit: int
) -> None:
    """A query is slow above 0.1 s, and three times what queries take almost alone."""
    measured = ConcurrencyLimit(10)
    for at in range(50 if alone_s else 0):
        measured.on_success(float(at), at + (alone_s or 0.0), 5 if at % 2 else 1)

    measured.on_success(100.0, 100.0 + seconds, in_flight)

    assert measured.limit == limit


def spent(guard: BackendGuard, now: float = 0.0) -> int:
    """How many retries the guard has now; takes them all."""
    count = 0
    while guard.retries.take_token(now):
        count += 1
    return count


@pytest.mark.parametrize(
    ("first_attempts", "now", "retries"),
    [(0, 0.9, 0), (0, 2.5, 2), (6, 0.0, 1), (15, 0.0, 3), (1000, 0.0, 10), (0, 1e6, 10)],
)
def test_budget_is_earned(first_attempts: int, now: float, retries: int) -> None:
    """After ten retries, each first attempt earns a fifth of one, and each second one; at most ten.

    Unused retries are not saved beyond that.
    """
    guard = BackendGuard(1)
    assert spent(guard) == 10
    for _ in range(first_attempts):
        guard.on_sent(0.0, is_first=True)

    assert spent(guard, now) == retries


def sent_without_pause(rate: int, seconds: float) -> list[float]:
    """The times of queries that are sent as soon as the rate allows."""
    guard, now, times = BackendGuard(1, max_queries_per_s=rate), 0.0, list[float]()
    while (now := guard.pace.next_at(now)) < seconds:
        guard.on_sent(now, is_first=bool(len(times) % 2))
        times.append(now)
    return times


@pytest.mark.parametrize("rate", [1, 7, 25, 100])
def test_rate_holds_in_any_second(rate: int) -> None:
    """Retries count; no second has more queries than the limit, and few have much less."""
    times = sent_without_pause(rate, 4.0)

    counts = [sum(start <= each < start + 0.999 for each in times) for start in times if start < 3]
    assert rate * 0.9 - 1 <= min(counts)
    assert max(counts) <= rate


def test_quarantine_ends_in_time() -> None:
    """A rejected key is kept out for 30 s after its last rejection, and then takes no memory."""
    quarantine = Quarantine()
    for key, now in ((1, 0.0), (2, 10.0), (1, 20.0)):
        quarantine.add(key, ErrorCode.KEY_REJECTED, now)
    keys, refused = [1, 2, 3], ErrorCode.KEY_REJECTED

    assert quarantine.codes(keys, 39.9) == [refused, refused, None]
    assert quarantine.codes(keys, 40.0) == [refused, None, None]
    assert [quarantine.until(key, 49.9) for key in keys] == [50.0, None, None]
    assert quarantine.until(1, 50.0) is None
    assert quarantine.codes(keys, 50.0) == [None, None, None]
    assert len(quarantine) == 0


def test_oldest_key_leaves_first() -> None:
    """There is room for 10,000 keys."""
    quarantine = Quarantine()
    for key in range(10_001):
        quarantine.add(key, ErrorCode.VALUE_REJECTED, 0.0)

    refused = ErrorCode.VALUE_REJECTED
    assert len(quarantine) == 10_000
    assert quarantine.codes([0, 1, 10_000], 1.0) == [None, refused, refused]
