"""Retries of failed queries and of keys that had no row."""

import math
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lookup_core.backoff import RetryStrategy
from lookup_core.dimension.flight_table import FlightTable, LookupId, Waiters
from lookup_core.dimension.query_results import NO_ROW, QueryResult
from lookup_core.dimension.query_table import Bisection, Query, QueryTable
from lookup_core.dimension.totals import Totals
from lookup_core.dimension.waiting_lookups import WaitingLookups
from lookup_core.errors import ErrorCode
from lookup_core.protection.backend_guard import BackendGuard
from lookup_core.settings import RetrySettings

NEVER = math.inf


class RetryPolicy:
    """Both strategies of one dimension; `now` and what is returned are monotonic seconds.

    After the last try the next one is `NEVER`, which is later than anybody waits.
    """

    def __init__(self, settings: RetrySettings) -> None:
        on_missing = settings.on_missing
        self._on_failure = RetryStrategy(
            max_retries=settings.max_retries,
            initial_ms=_milliseconds(settings.initial_s),
            max_ms=_milliseconds(settings.max_s),
            multiplier=settings.multiplier,
        )
        # Without jitter: the delay is how late a row may come, not a way out of a congestion, and
        # queries that land at different times are spread already.
        self._on_missing = RetryStrategy(
            max_retries=on_missing.max_retries,
            initial_ms=_milliseconds(on_missing.delay_s),
            max_ms=_milliseconds(on_missing.delay_s),
        )

    def after_failure(self, failures: int, *, code: ErrorCode, now: float, jitter: float) -> float:
        """When to try again after so many failures, of which the last one had this code.

        `jitter` in [0, 1) spreads the delay over its upper half.
        """
        if not (code.is_retryable and self._on_failure.can_retry(failures)):
            return NEVER
        return now + self._on_failure.delay_ms(failures) / 1000 * (0.5 + jitter / 2)

    def after_miss(self, misses: int, *, now: float) -> float:
        """When to ask again for keys that had no row so often."""
        if not self._on_missing.can_retry(misses):
            return NEVER
        return now + self._on_missing.delay_ms(misses) / 1000


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


_ALWAYS_QUERIES = 64  # enough to find every refused key among 32


@dataclass(frozen=True, slots=True)
class FailedQueryRetries:
    """The rules for the queries of one dimension; `now` is monotonic seconds.

    A connection that broke is replaced at once, the first time. What the store refuses because of
    a value is asked in halves, in at most as many queries as the batch has keys (or 64). While the
    breaker holds queries back, one that has used its tries waits with the others: a store that is
    down is no fault of the query. All other tries are those of the retry policy. Every try but
    those of a bisection takes from the retry budget.
    """

    policy: RetryPolicy
    guard: BackendGuard

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


@dataclass(frozen=True, slots=True)
class MissingKeySelection:
    """Keys that wait for another try, and the lookups that wait with them.

    Those lookups get no answer for these keys now. All others that wait for such a key do: they
    would be gone before the next try, and the wait would only make a timeout of an absence.
    """

    lookups: AbstractSet[LookupId]
    is_postponed: npt.NDArray[np.bool_]  # [keys of the query]
    retry_at: float  # or NEVER

    @property
    def is_last_try(self) -> bool:
        """Whether a key without a row has none, as far as anybody waits to know."""
        return self.retry_at == NEVER

    @classmethod
    def of_missing(
        cls,
        landing: QueryResult,
        waiters: Waiters,
        *,
        patient: AbstractSet[LookupId],
        retry_at: float,
    ) -> "MissingKeySelection":
        """The keys without a row that a patient lookup waits for; none without such lookups."""
        is_wanted = np.zeros(len(landing.row_of), np.bool_)
        for lookup_id in patient:
            _, ordinals = waiters[lookup_id]
            is_wanted[ordinals] = True
        return cls(patient, is_wanted & (landing.row_of == NO_ROW), retry_at)

    def answered_now(self, waiters: Waiters) -> Waiters:
        """The same waiters without those who wait on."""
        answered = dict(waiters)
        for lookup_id in self.lookups:
            positions, ordinals = waiters[lookup_id]
            is_answered = ~self.is_postponed[ordinals]
            answered[lookup_id] = positions[is_answered], ordinals[is_answered]
        return answered


@dataclass(frozen=True, slots=True)
class MissingKeyRetries:
    """The rules for the keys of one dimension; `now` is monotonic seconds.

    A try that came early because a change was told takes no part in the count: without a row, its
    keys wait on for the try that they waited for before it.
    """

    policy: RetryPolicy
    waiting: WaitingLookups
    queries: QueryTable
    flights: FlightTable
    totals: Totals

    def postponed(
        self, query: Query, landing: QueryResult, waiters: Waiters, *, now: float
    ) -> MissingKeySelection:
        """Which keys of a query that landed now wait for another try."""
        retry_at = self.policy.after_miss(query.misses + 1, now=now)
        if query.hastened_from is not None:
            retry_at = max(query.hastened_from, now)
        patient = self.waiting.lasting_beyond(retry_at, waiters)
        return MissingKeySelection.of_missing(landing, waiters, patient=patient, retry_at=retry_at)

    def postpone(self, query: Query, postponed: MissingKeySelection) -> None:
        """Part a query that landed from those keys, and park them."""
        if postponed.is_postponed.any():
            self.totals.retries += 1
            retry_at = postponed.retry_at
            missed = self.queries.split_off(query, postponed.is_postponed, retry_at)
            self.flights.postpone(missed.flights, postponed.lookups, until=retry_at)
