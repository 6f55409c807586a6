"""What becomes of a query that failed: another try, and when, or the end.

Decides only; the queries themselves are the query table's.
"""

from dataclasses import dataclass

from lookup_core.dimension.query_table import Bisection, Query
from lookup_core.dimension.retry_policy import NEVER, RetryPolicy
from lookup_core.errors import ErrorCode
from lookup_core.protection.store_guard import StoreGuard

_ALWAYS_QUERIES = 64  # enough to find every refused key among 32


@dataclass(frozen=True, slots=True)
class FailedTries:
    """The rules for the queries of one dimension; `now` is monotonic seconds.

    A connection that broke is replaced at once, the first time. What the store refuses because of
    a value is asked in halves, in at most as many queries as the batch has keys (or 64). While the
    breaker holds queries back, one that has used its tries waits with the others: a store that is
    down is no fault of the query. All other tries are those of the retry policy. Every try but
    those of a bisection takes from the retry budget.
    """

    policy: RetryPolicy
    guard: StoreGuard

    def retry_at(
        self, query: Query, code: ErrorCode, *, latest_s: float, now: float, jitter: float
    ) -> float:
        """When to try again, NEVER to give up; notes the failure at the guard and at the query.

        Nobody waits beyond `latest_s`.
        """
        self.guard.on_failure(code, sent_at=query.sent_at, now=now)
        if code is ErrorCode.KEY_REJECTED:
            return now if _may_part(query) else NEVER
        retry_at = self._next_try(query, code, now=now, jitter=jitter)
        if retry_at >= latest_s:
            return NEVER
        if code.is_retryable and self.guard.is_open:
            return max(now, retry_at)
        return retry_at if self.guard.take_retry(now) else NEVER

    @staticmethod
    def is_parted(code: ErrorCode) -> bool:
        """Whether the keys go on in two halves: one of them, or their number, was too much."""
        return code in {ErrorCode.KEY_REJECTED, ErrorCode.TIMEOUT}

    def _next_try(self, query: Query, code: ErrorCode, *, now: float, jitter: float) -> float:
        if code is ErrorCode.CONNECTION_LOST:
            query.losses += 1
            if query.losses == 1:
                return now
        query.failures += 1
        if code.is_retryable and self.guard.is_open:
            return now  # that is: when the breaker closes
        return self.policy.after_failure(query.failures, code=code, now=now, jitter=jitter)


def _may_part(query: Query) -> bool:
    if len(query.flights) == 1:
        return False
    if query.bisection is None:
        query.bisection = Bisection(max(len(query.flights), _ALWAYS_QUERIES))
    query.bisection.queries_left -= 2
    return query.bisection.queries_left >= 0
