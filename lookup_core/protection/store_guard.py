"""What stands between a dimension and its store: breaker, concurrency limit, retry budget.

Is told of every try and how it ended, and says whether another may go. Knows nothing of keys: what
becomes of those that may not be asked now is the dimension's business.
"""

from lookup_core.errors import ErrorCode
from lookup_core.protection.circuit_breaker import BreakerState, CircuitBreaker
from lookup_core.protection.concurrency_limit import ConcurrencyLimit
from lookup_core.protection.retry_budget import RetryBudget

# What tells of the store itself. All other failures are answers: it lives, and works.
_OF_THE_STORE = frozenset(
    {
        ErrorCode.TIMEOUT,
        ErrorCode.UPSTREAM_UNAVAILABLE,
        ErrorCode.UPSTREAM_AUTH,
        ErrorCode.CONNECTION_LOST,
    }
)


class StoreGuard:
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
        is_auth = self._breaker.cause is ErrorCode.UPSTREAM_AUTH
        return ErrorCode.UPSTREAM_AUTH if is_auth else ErrorCode.UPSTREAM_UNAVAILABLE

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
