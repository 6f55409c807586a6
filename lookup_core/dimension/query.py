"""Queries: batches of keys through all their attempts, and the rules for another attempt."""

from dataclasses import dataclass

import pyarrow as pa

from lookup_core.backoff import NEVER, Backoff, jittered
from lookup_core.dimension.dimension_events import BatchId
from lookup_core.dimension.numbered_rows import Numbers
from lookup_core.errors import ErrorCode
from lookup_core.protection.backend_guard import BackendGuard
from lookup_core.settings import OnMissingSettings, RetrySettings


@dataclass(slots=True, eq=False)
class Query:
    """One batch of keys through all its attempts; failures and misses are counted separately."""

    id: BatchId
    flights: Numbers
    keys: pa.RecordBatch  # [flights] typed
    sent_at: float  # the last attempt; its rows may be as old as that
    retry_at: float | None = None  # while it is parked; None: it is at the backend
    in_flight: int = 1  # the queries at the backend when it was sent, itself included
    has_lost_connection: bool = False  # in its first such attempt, which is no failure
    failures: int = 0  # all other failed attempts
    misses: int = 0  # attempts that found no row for any of these keys
    on_missing: OnMissingSettings | None = None  # the retries that `misses` counts towards
    # When its attempt was due, before a change of a key brought it forward.
    due_without_change: float | None = None

    @property
    def tries(self) -> int:
        """The number of attempts for its keys, this one included."""
        return 1 + self.has_lost_connection + self.failures + self.misses


class RetryRules:
    """When a query has its next attempt; `now` is monotonic seconds.

    A connection that broke is replaced at once, the first time. A batch with a refused value is
    halved until each refused key is alone: less than two queries for each key. While the breaker is
    open, a query without attempts left waits for it: an outage is not the query's fault. All other
    retries follow the settings. Every retry but those of halves takes from the budget.
    """

    def __init__(self, settings: RetrySettings, guard: BackendGuard) -> None:
        self._configured = settings.on_missing
        self._guard = guard
        self._on_failure = Backoff(
            max_retries=settings.max_retries,
            initial_s=settings.initial_s,
            max_s=settings.max_s,
            multiplier=settings.multiplier,
        )

    def failed_retry_at(
        self, query: Query, code: ErrorCode, *, latest_s: float, now: float, jitter: float
    ) -> float:
        """The time of the next attempt after a failure, or NEVER; counts the failure.

        `latest_s` is the latest deadline of its lookups.
        """
        if code.is_of_one_key:
            return now if len(query.flights) > 1 else NEVER
        waits_for_breaker = code.is_retryable and self._guard.is_open
        if code is ErrorCode.CONNECTION_LOST and not query.has_lost_connection:
            query.has_lost_connection = True
            retry_at = now
        else:
            query.failures += 1
            if waits_for_breaker:
                retry_at = now  # when the breaker closes
            elif code.is_retryable and self._on_failure.can_retry(query.failures):
                delay_s = self._on_failure.delay_s(query.failures)
                retry_at = now + jittered(delay_s, jitter)
            else:
                return NEVER
        retry_at = self._guard.pace.next_at(retry_at)
        if retry_at >= latest_s:
            return NEVER
        return retry_at if waits_for_breaker or self._guard.retries.take_token(now) else NEVER

    def missing_retry_at(self, query: Query, on_missing: OnMissingSettings, now: float) -> float:
        """The time of the next attempt for the missing keys of a query, or NEVER.

        An attempt that a change brought forward is not counted: its former time stays as it is.
        Without jitter: the delay says how late a row may arrive, and it relieves no congestion.
        """
        is_counted = query.on_missing == on_missing
        if is_counted and query.due_without_change is not None:
            return max(query.due_without_change, now)
        misses = query.misses if is_counted else 0
        return now + on_missing.delay_s if misses < on_missing.max_retries else NEVER

    def is_last_try(self, query: Query) -> bool:
        """Whether the dimension's own retries allow no other attempt for missing keys.

        Other retries of single channels do not count: their attempts follow other delays.
        """
        return self.missing_retry_at(query, self._configured, 0.0) == NEVER
