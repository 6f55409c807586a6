"""Retry policy: when failed queries and missing keys are queried again.

Only computes times; the query table parks the queries.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lookup_core.backoff import NEVER, Backoff, jittered
from lookup_core.dimension.flight_table import LookupId, Waiters
from lookup_core.dimension.query_results import NO_ROW, QueryResult
from lookup_core.errors import ErrorCode
from lookup_core.settings import RetrySettings


class RetryPolicy:
    """The retry times of one dimension, in monotonic seconds; NEVER after the last attempt."""

    def __init__(self, settings: RetrySettings) -> None:
        on_missing = settings.on_missing
        self._on_failure = Backoff(
            max_retries=settings.max_retries,
            initial_s=settings.initial_s,
            max_s=settings.max_s,
            multiplier=settings.multiplier,
        )
        # Without jitter: the delay says how late a row may arrive, and it relieves no congestion.
        self._on_missing = Backoff(
            max_retries=on_missing.max_retries,
            initial_s=on_missing.delay_s,
            max_s=on_missing.delay_s,
        )

    def after_failure(self, failures: int, *, code: ErrorCode, now: float, jitter: float) -> float:
        """The next attempt after this many failures, the last of them with this code.

        `jitter` in [0, 1) spreads the delay over its upper half.
        """
        if not (code.is_retryable and self._on_failure.can_retry(failures)):
            return NEVER
        return now + jittered(self._on_failure.delay_s(failures), jitter)

    def after_miss(self, misses: int, *, now: float) -> float:
        """The next attempt for keys that had no row this many times."""
        if not self._on_missing.can_retry(misses):
            return NEVER
        return now + self._on_missing.delay_s(misses)


@dataclass(frozen=True, slots=True)
class PostponedKeys:
    """Keys without a row that wait for another attempt, and the lookups that wait with them.

    Lookups whose deadline precedes that attempt get `missing` now.
    """

    lookups: AbstractSet[LookupId]
    is_postponed: npt.NDArray[np.bool_]  # [keys of the query]
    retry_at: float  # or NEVER

    @classmethod
    def of_missing(
        cls,
        result: QueryResult,
        waiters: Waiters,
        *,
        patient: AbstractSet[LookupId],
        retry_at: float,
    ) -> "PostponedKeys":
        """The keys without a row that the patient lookups wait for."""
        is_wanted = np.zeros(len(result.row_of), np.bool_)
        for lookup_id in patient:
            _, ordinals = waiters[lookup_id]
            is_wanted[ordinals] = True
        return cls(patient, is_wanted & (result.row_of == NO_ROW), retry_at)

    def answered_now(self, waiters: Waiters) -> Waiters:
        """The waiters without those that wait for the other attempt."""
        answered = dict(waiters)
        for lookup_id in self.lookups:
            positions, ordinals = waiters[lookup_id]
            is_answered = ~self.is_postponed[ordinals]
            answered[lookup_id] = positions[is_answered], ordinals[is_answered]
        return answered
