"""Whether keys without a row are asked again, and when."""

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.dimension.flight_table import FlightTable, LookupId
from lookup_core.dimension.query_results import QueryResult
from lookup_core.dimension.query_table import Query, QueryTable
from lookup_core.dimension.retries import NEVER, MissingKeyRetries, MissingKeySelection, RetryPolicy
from lookup_core.dimension.totals import Totals
from lookup_core.dimension.waiting_lookups import WaitingLookup, WaitingLookups
from lookup_core.settings import OnMissingSettings, RetrySettings
from tests.lookup_core.dimension.key_runs import LATE_S, joined_run

ADA = LookupId(1)
NO_ROWS = QueryResult.of_rows(
    2, np.zeros(0, np.int32), rows=pa.record_batch({"name": pa.array([], pa.utf8())}), age_ms=0
)


class Tries(MissingKeyRetries):
    """Two tries, 4 s apart; Ada waits for two keys for long."""

    def __init__(self) -> None:
        flights = FlightTable()
        policy = RetryPolicy(RetrySettings(on_missing=OnMissingSettings(1, 4.0)))
        super().__init__(policy, WaitingLookups(), QueryTable(flights), flights, Totals())

    def query(self, *, misses: int = 0, hastened_from: float | None = None) -> Query:
        """A query that has landed."""
        run, waiters = joined_run(self.flights, 7, 8)
        self.waiting.add(WaitingLookup(ADA, ("name",), LATE_S, waiters))
        query = self.queries.start([run], 0.0)
        query.misses, query.hastened_from = misses, hastened_from
        return query

    def after(self, query: Query, *, now: float) -> MissingKeySelection:
        """What becomes of its keys, which have no rows."""
        return self.postponed(query, NO_ROWS, self.flights.waiters(query.flights), now=now)


@pytest.mark.parametrize(
    ("misses", "hastened_from", "retry_at"),
    [(0, None, 14.0), (1, None, NEVER), (1, 12.0, 12.0), (1, 9.0, 10.0)],
)
def test_try_before_its_time_does_not_count(
    misses: int, hastened_from: float | None, retry_at: float
) -> None:
    """After a regular try comes the next one, after an early one that which was to come anyway."""
    tries = Tries()
    query = tries.query(misses=misses, hastened_from=hastened_from)

    postponed = tries.after(query, now=10.0)

    assert postponed.retry_at == retry_at
    assert postponed.is_postponed.all() == (retry_at < NEVER)


def test_postponed_keys_are_parked() -> None:
    """They are a query of their own, due at that time, and count as one more try."""
    tries = Tries()
    query = tries.query()

    tries.postpone(query, tries.after(query, now=10.0))

    assert (len(query.flights), tries.queries.next_retry(), tries.totals.retries) == (0, 14.0, 1)


def test_nothing_postponed_parks_nothing() -> None:
    """After the last try all is answered."""
    tries = Tries()
    query = tries.query(misses=1)

    tries.postpone(query, tries.after(query, now=10.0))

    assert (len(query.flights), tries.queries.next_retry(), tries.totals.retries) == (2, None, 0)
