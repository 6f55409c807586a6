"""Protection of a backend: circuit breaker, concurrency limit, retry budget and key quarantine."""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from lookup_core.errors import ErrorCode
from lookup_core.keys.canonical_keys import KeyId
from lookup_core.protection.circuit_breaker import BreakerState, CircuitBreaker

_DECREASE = 0.7
_SLOW_FACTOR = 3.0  # times the usual latency
_LEAST_SLOW_S = 0.1  # a fast store is never throttled by noise
_BASELINE_WEIGHT = 0.1  # of a new sample


class ConcurrencyLimit:
    """A limit between 1 and `max_limit`; `now` is monotonic seconds."""

    def __init__(self, max_limit: int) -> None:
        self._max = max_limit
        self._limit = float(max_limit)
        self._decreased_at = float("-inf")
        self._baseline_s: float | None = None  # latency of queries that ran almost alone

    @property
    def limit(self) -> int:
        """How many queries may be at the store now."""
        return int(self._limit)

    def on_success(self, sent_at: float, now: float, in_flight: int) -> None:
        """A query that was sent beside so many (itself included) brought its rows.

        What was sent before the last decrease tells of the time before it, and is ignored.
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
        """A query took too long, or was refused for lack of room; ignored like a success is."""
        if sent_at >= self._decreased_at:
            self._limit = max(1.0, self._limit * _DECREASE)
            self._decreased_at = now

    def check_invariants(self) -> None:
        """For tests."""
        assert 1 <= self.limit <= self._max

    def _learn(self, seconds: float) -> None:
        before = seconds if self._baseline_s is None else self._baseline_s
        self._baseline_s = before + _BASELINE_WEIGHT * (seconds - before)

    def _is_slow(self, seconds: float) -> bool:
        if self._baseline_s is None:
            return False
        return seconds > max(_LEAST_SLOW_S, _SLOW_FACTOR * self._baseline_s)


_EARNED = 0.2  # retries, by each first try
_TRICKLE = 1.0  # retries a second
_MOST = 10.0  # retries that may be saved up


class RetryBudget:
    """Retries that may be spent; begins full. `now` is monotonic seconds."""

    def __init__(self) -> None:
        self._saved = _MOST
        self._counted_at: float | None = None

    def on_first_try(self, now: float) -> None:
        """A query goes to the store for the first time."""
        self._trickle(now)
        self._saved = min(_MOST, self._saved + _EARNED)

    def take(self, now: float) -> bool:
        """Spend a retry; False if there is none."""
        self._trickle(now)
        if self._saved < 1:
            return False
        self._saved -= 1
        return True

    def check_invariants(self) -> None:
        """For tests."""
        assert 0 <= self._saved <= _MOST

    def _trickle(self, now: float) -> None:
        if self._counted_at is not None:
            self._saved = min(_MOST, self._saved + _TRICKLE * (now - self._counted_at))
        self._counted_at = now


_SECONDS = 30.0
_MOST_KEYS = 10_000


class Quarantine:
    """Keys by id, the oldest first; `now` is monotonic seconds."""

    def __init__(self) -> None:
        self._until: dict[KeyId, float] = {}

    def __len__(self) -> int:
        return len(self._until)

    def add(self, key_id: KeyId, now: float) -> None:
        """Keep a key out from now on; the oldest goes when there are too many."""
        self._until.pop(key_id, None)
        self._until[key_id] = now + _SECONDS
        if len(self._until) > _MOST_KEYS:
            del self._until[next(iter(self._until))]

    def is_in(self, key_ids: Sequence[KeyId], now: float) -> npt.NDArray[np.bool_]:
        """Which of these are kept out; cheap while none are."""
        self._drop_expired(now)
        if not self._until:
            return np.zeros(len(key_ids), np.bool_)
        return np.array([key_id in self._until for key_id in key_ids], np.bool_)

    def until(self, key_id: KeyId, now: float) -> float | None:
        """Until when this key is kept out; None if it is not."""
        until = self._until.get(key_id)
        return None if until is None or until <= now else until

    def remove(self, key_ids: Iterable[KeyId]) -> None:
        """Let keys in again; harmless for others."""
        if self._until:
            for key_id in key_ids:
                self._until.pop(key_id, None)

    def clear(self) -> None:
        """Let all keys in again."""
        self._until.clear()

    def _drop_expired(self, now: float) -> None:
        # In the order of their ends, as all stay equally long.
        while self._until and next(iter(self._until.values())) <= now:
            del self._until[next(iter(self._until))]


# What tells of the store itself. All other failures are answers: it lives, and works.
_OF_THE_STORE = frozenset(
    {
        ErrorCode.TIMEOUT,
        ErrorCode.BACKEND_UNAVAILABLE,
        ErrorCode.BACKEND_AUTH,
        ErrorCode.CONNECTION_LOST,
    }
)


class BackendGuard:
    """The protection of one dimension's store; `now` is monotonic seconds throughout."""

    def __init__(self, max_in_flight: int) -> None:
        self._breaker = CircuitBreaker()
        self._limit = ConcurrencyLimit(max_in_flight)
        self._budget = RetryBudget()

    @property
    def breaker_state(self) -> BreakerState:
        """Whether queries are sent, held back, or a probe is under way."""
        return self._breaker.state

    @property
    def is_open(self) -> bool:
        """Whether queries are held back, because the store does not answer."""
        return not self._breaker.allows_query

    @property
    def late_code(self) -> ErrorCode:
        """What is told to those whose time is over: what is wrong with the store, or a timeout."""
        if not self.is_open:
            return ErrorCode.TIMEOUT
        is_auth = self._breaker.cause is ErrorCode.BACKEND_AUTH
        return ErrorCode.BACKEND_AUTH if is_auth else ErrorCode.BACKEND_UNAVAILABLE

    @property
    def limit(self) -> int:
        """How many queries may be at the store at a time."""
        return self._limit.limit

    def has_slot(self, in_flight: int) -> bool:
        """Whether another query may go beside so many."""
        return self._breaker.allows_query and in_flight < self._limit.limit

    def on_sent(self, now: float) -> None:
        """The first try of a query goes: it earns a part of a retry."""
        self._budget.on_first_try(now)

    def take_retry(self, now: float) -> bool:
        """Take one retry out of the budget; False if none is left."""
        return self._budget.take(now)

    def on_success(self, sent_at: float, now: float, *, in_flight: int) -> None:
        """A query that was sent beside so many others (itself included) brought its rows."""
        self._breaker.on_success()
        self._limit.on_success(sent_at, now, in_flight)

    def on_failure(self, code: ErrorCode, *, sent_at: float, now: float) -> None:
        """A query failed; a store that refuses a question has answered it."""
        if code is ErrorCode.TIMEOUT:
            self._limit.on_overload(sent_at, now)
        if code in _OF_THE_STORE:
            self._breaker.on_failure(code, now)
        elif code is not ErrorCode.INTERNAL:  # a defect of ours says nothing about the store
            self._breaker.on_success()

    def next_probe_at(self) -> float | None:
        """When the store is to be asked for a sign of life; None while that is not needed."""
        return self._breaker.probe_due_at()

    def start_probe_if_due(self, now: float) -> bool:
        """Whether to ask the store for a sign of life now; each time once."""
        due_at = self._breaker.probe_due_at()
        if due_at is None or due_at > now:
            return False
        self._breaker.start_probe(now)
        return True

    def on_probe(self, error: ErrorCode | None, *, now: float, jitter: float) -> None:
        """The store gave a sign of life, or failed to; `jitter` in [0, 1)."""
        if error is None:
            self._breaker.on_probe_success()
        else:
            self._breaker.on_probe_failure(error, now, jitter)

    def check_invariants(self) -> None:
        """For tests."""
        for part in (self._breaker, self._limit, self._budget):
            part.check_invariants()
