"""What each of several lookups gets of one query."""

import numpy as np
import pyarrow as pa

from lookup_core.dimension.dimension_state import LookupShares
from lookup_core.dimension.flight_table import FlightTable, LookupId
from lookup_core.dimension.local_resolver import LocalResolver
from lookup_core.dimension.query_results import QueryResult
from lookup_core.dimension.query_table import Query, QueryTable
from lookup_core.dimension.waiting_lookups import WaitingLookup, WaitingLookups
from lookup_core.errors import ErrorCode
from lookup_core.keys.canonical_keys import keys_of_ids
from tests.lookup_core.dimension.dimension_script import SCHEMA, settings, told
from tests.lookup_core.dimension.key_runs import LATE_S, joined_run

ADA, BERT = LookupId(1), LookupId(2)
KNOWN = LocalResolver(settings(default={"name": "nobody"}), SCHEMA, seed=0)


def shared_query() -> tuple[Query, LookupShares]:
    """Keys 7 and 8; Ada waits for both, Bert for 8 at his position 5."""
    flights, waiting = FlightTable(), WaitingLookups()
    run, of_ada = joined_run(flights, 7, 8, lookup=ADA)
    places = np.array([5], np.int32)
    of_bert = flights.join(BERT, keys_of_ids([8]), positions=places, deadline_s=LATE_S).waiters
    waiting.add(WaitingLookup(ADA, ("name",), 9.0, of_ada))
    waiting.add(WaitingLookup(BERT, ("name",), 9.0, of_bert))
    return QueryTable(flights).start([run], 0.0), LookupShares(flights, waiting, KNOWN)


def test_rows_are_shared() -> None:
    """Each lookup gets its own keys' rows at its own positions; absences are the default row."""
    query, lookup_shares = shared_query()
    rows = pa.record_batch([pa.array(["row 8"])], SCHEMA.columns)
    landing = QueryResult.of_rows(2, np.array([1], np.int32), rows=rows, age_ms=0)

    waiters = lookup_shares.flights.waiters(query.flights)
    shares = lookup_shares.of_rows(landing, waiters)

    of_ada = [answer for lookup, answer in shares if lookup == ADA]
    of_bert = [answer for lookup, answer in shares if lookup == BERT]
    assert told(of_ada) == {0: "default nobody", 1: "fetched row 8"}
    assert told(of_bert) == {5: "fetched row 8"}


def test_failures_are_shared() -> None:
    """Everybody gets the error of the query."""
    query, lookup_shares = shared_query()

    shares = lookup_shares.of_failure(query, ErrorCode.FORBIDDEN, 1.0)

    assert [(lookup, told([answer])) for lookup, answer in shares] == [
        (ADA, {0: "error forbidden", 1: "error forbidden"}),
        (BERT, {5: "error forbidden"}),
    ]


def test_last_share_ends_a_lookup() -> None:
    """Whose time is over gets one answer of each kind, the last of them marked."""
    _, lookup_shares = shared_query()
    lookup = lookup_shares.waiting.get(ADA)

    shares = lookup_shares.of_expired([lookup], ErrorCode.TIMEOUT, 9.0)

    assert [(told([answer]), is_last) for (_, answer), is_last in shares] == [
        ({0: "timeout timeout", 1: "timeout timeout"}, True)
    ]
