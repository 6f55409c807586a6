"""What becomes of the keys of a query that had no row: another try, and when, or an answer.

Queries that failed are `failed_tries`' business.
"""

from dataclasses import dataclass

from lookup_core.dimension.flight_table import FlightTable, Waiters
from lookup_core.dimension.landing import Landing
from lookup_core.dimension.postponement import Postponement
from lookup_core.dimension.query_table import Query, QueryTable
from lookup_core.dimension.retry_policy import RetryPolicy
from lookup_core.dimension.totals import Totals
from lookup_core.dimension.waiting_lookups import WaitingLookups


@dataclass(frozen=True, slots=True)
class MissingTries:
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
        self, query: Query, landing: Landing, waiters: Waiters, *, now: float
    ) -> Postponement:
        """Which keys of a query that landed now wait for another try."""
        retry_at = self.policy.after_miss(query.misses + 1, now=now)
        if query.hastened_from is not None:
            retry_at = max(query.hastened_from, now)
        patient = self.waiting.lasting_beyond(retry_at, waiters)
        return Postponement.of_missing(landing, waiters, patient=patient, retry_at=retry_at)

    def postpone(self, query: Query, postponed: Postponement) -> None:
        """Part a query that landed from those keys, and park them."""
        if postponed.is_postponed.any():
            self.totals.retries += 1
            retry_at = postponed.retry_at
            missed = self.queries.split_off(query, postponed.is_postponed, retry_at)
            self.flights.postpone(missed.flights, postponed.lookups, until=retry_at)
