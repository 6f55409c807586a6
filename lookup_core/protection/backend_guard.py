"""Protection of a backend: circuit breaker, concurrency limit, retry budget and key quarantine.

Counts and decides; queries and probes are sent by the shell.
"""

from collections.abc import Iterable, Sequence

from lookup_core.errors import ErrorCode
from lookup_core.keys.canonical_keys import KeyId
from lookup_core.protection.circuit_breaker import BreakerState, CircuitBreaker
from lookup_core.protection.throughput_search import ThroughputSearch
from lookup_core.rate_limits import Pace, TokenBucket

_DECREASE = 0.7
_SLOW_FACTOR = 3.0  # times the usual latency
_MIN_SLOW_S = 0.1  # a fast backend is never throttled by noise
_NEW_SAMPLE_WEIGHT = 0.1
_EARNED_RETRIES = 0.2  # for each first attempt
_RETRIES_PER_SECOND = 1.0
_MAX_SAVED_RETRIES = 10.0
_QUARANTINE_S = 30.0
_MAX_QUARANTINED_KEYS = 10_000


class ConcurrencyLimit:
    """An AIMD limit between 1 and `max_limit`; `now` is monotonic seconds."""

    def __init__(self, max_limit: int) -> None:
        self._max = max_limit
        self._limit = float(max_limit)
        self._decreased_at = float("-inf")
        self._baseline_s: float | None = None  # latency of queries that ran almost alone

    @property
    def limit(self) -> int:
        """The number of queries that may be at the backend now."""
        return int(self._limit)

    def on_success(self, sent_at: float, now: float, in_flight: int) -> None:
        """A query returned; `in_flight` were at the backend when it was sent, itself included.

        Queries from before the last decrease are ignored.
        """
        if sent_at < self._decreased_at:
            return
        seconds = now - sent_at
        is_alone = in_flight <= max(1, self.limit // 2)
        if is_alone:
            self._learn(seconds)
        if not is_alone and self._is_slow(seconds):
            self.on_overload(sent_at, now)
        elif in_flight >= self.limit:
            self._limit = min(self._max, self._limit + 1 / self._limit)

    def on_overload(self, sent_at: float, now: float) -> None:
        """A query was too slow or refused for load; ignored if sent before the last decrease."""
        if sent_at >= self._decreased_at:
            self._limit = max(1.0, self._limit * _DECREASE)
            self._decreased_at = now

    def check_invariants(self) -> None:
        """For tests."""
        assert 1 <= self.limit <= self._max

    def _learn(self, seconds: float) -> None:
        before = seconds if self._baseline_s is None else self._baseline_s
        self._baseline_s = before + _NEW_SAMPLE_WEIGHT * (seconds - before)

    def _is_slow(self, seconds: float) -> bool:
        if self._baseline_s is None:
            return False
        return seconds > max(_MIN_SLOW_S, _SLOW_FACTOR * self._baseline_s)


class Quarantine:
    """Keys that the backend refused, the oldest first; `now` is monotonic seconds."""

    def __init__(self) -> None:
        self._refused: dict[KeyId, tuple[float, ErrorCode]] = {}  # {key: end, error}

    def __len__(self) -> int:
        return len(self._refused)

    def add(self, key_id: KeyId, code: ErrorCode, now: float) -> None:
        """Add a key with its error; removes the oldest one of too many."""
        self._refused.pop(key_id, None)
        self._refused[key_id] = now + _QUARANTINE_S, code
        if len(self._refused) > _MAX_QUARANTINED_KEYS:
            del self._refused[next(iter(self._refused))]

    def codes(self, key_ids: Sequence[KeyId], now: float) -> list[ErrorCode | None]:
        """The errors of these keys; None for keys that are not in quarantine."""
        self._drop_expired(now)
        none = (now, None)
        return [self._refused.get(key_id, none)[1] for key_id in key_ids]

    def until(self, key_id: KeyId, now: float) -> float | None:
        """The end of a key's quarantine; None if it is not in quarantine."""
        until, _ = self._refused.get(key_id, (now, None))
        return until if until > now else None

    def remove(self, key_ids: Iterable[KeyId]) -> None:
        """Remove keys; a no-op for others."""
        if self._refused:
            for key_id in key_ids:
                self._refused.pop(key_id, None)

    def clear(self) -> None:
        """Remove all keys."""
        self._refused.clear()

    def _drop_expired(self, now: float) -> None:
        # All keys stay equally long, so the first one ends first.
        while self._refused and next(iter(self._refused.values()))[0] <= now:
            del self._refused[next(iter(self._refused))]


# Failures of the backend itself. All other errors are responses of a backend that works.
_BACKEND_FAILURES = frozenset(
    {
        ErrorCode.TIMEOUT,
        ErrorCode.BACKEND_UNAVAILABLE,
        ErrorCode.BACKEND_AUTH,
        ErrorCode.CONNECTION_LOST,
    }
)


class BackendGuard:
    """The protection of one dimension's backend; `now` is monotonic seconds.

    Its events go through the methods; `breaker` says when to probe, `pace` when to query, and
    `retries` is the budget of retries.
    """

    def __init__(self, max_in_flight: int, *, max_queries_per_s: int | None = None) -> None:
        """Without `max_queries_per_s`, the rate of queries has no limit."""
        self.breaker = CircuitBreaker()
        self._limit = ConcurrencyLimit(max_in_flight)
        self._search = ThroughputSearch(max_in_flight)
        self.retries = TokenBucket(_MAX_SAVED_RETRIES, per_second=_RETRIES_PER_SECOND)
        self.pace = Pace(max_queries_per_s)  # probes have their own pauses

    @property
    def is_open(self) -> bool:
        """Whether queries are held back, because the backend does not respond."""
        return self.breaker.state is not BreakerState.CLOSED

    @property
    def late_code(self) -> ErrorCode:
        """The error of lookups whose deadline has passed: the backend's fault, else `timeout`."""
        if not self.is_open:
            return ErrorCode.TIMEOUT
        is_auth = self.breaker.cause is ErrorCode.BACKEND_AUTH
        return ErrorCode.BACKEND_AUTH if is_auth else ErrorCode.BACKEND_UNAVAILABLE

    @property
    def limit(self) -> int:
        """The number of queries that may be at the backend."""
        return min(self._limit.limit, self._search.limit)

    def has_slot(self, in_flight: int) -> bool:
        """Whether another query may be sent next to this many."""
        return not self.is_open and in_flight < self.limit

    def on_sent(self, now: float, *, is_first: bool) -> None:
        """A query is sent; the first attempt of one earns a part of a retry."""
        self.pace.on_event(now)
        if is_first:
            self.retries.add_tokens(_EARNED_RETRIES, now)

    def on_success(self, keys: int, *, sent_at: float, now: float, in_flight: int) -> None:
        """A query answered this many keys.

        `in_flight` were at the backend when it was sent, itself included.
        """
        self.breaker.on_success()
        self._limit.on_success(sent_at, now, in_flight)
        self._search.on_success(keys, sent_at=sent_at, now=now, in_flight=in_flight)

    def on_failure(self, code: ErrorCode, *, sent_at: float, now: float) -> None:
        """A query failed; a refused query shows that the backend works."""
        if code is ErrorCode.TIMEOUT:
            self._limit.on_overload(sent_at, now)
        if code in _BACKEND_FAILURES:
            self.breaker.on_failure(code, now)
        elif code is not ErrorCode.INTERNAL:  # a defect of the sidecar
            self.breaker.on_success()

    def start_probe_if_due(self, now: float) -> bool:
        """Whether to probe the backend now; true once for each probe."""
        due_at = self.breaker.probe_due_at()
        if due_at is None or due_at > now:
            return False
        self.breaker.start_probe(now)
        return True

    def on_probe(self, error: ErrorCode | None, *, now: float, jitter: float) -> None:
        """A probe succeeded, or failed with this error; `jitter` in [0, 1)."""
        if error is None:
            self.breaker.on_probe_success()
        else:
            self.breaker.on_probe_failure(error, now, jitter)

    def check_invariants(self) -> None:
        """For tests."""
        for part in (self.breaker, self._limit, self._search, self.retries):
            part.check_invariants()
