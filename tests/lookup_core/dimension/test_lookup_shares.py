"""What each of several lookups gets of one query."""

import numpy as np
import pyarrow as pa

from lookup_core.dimension.flight_table import Flight, LookupId
from lookup_core.dimension.known_answers import KnownAnswers
from lookup_core.dimension.landing import Landing, waiters_by_lookup
from lookup_core.dimension.lookup_shares import (
    shares_of_expired,
    shares_of_failure,
    shares_of_rows,
)
from lookup_core.dimension.query_table import Query, QueryTable
from lookup_core.dimension.waiting_lookups import WaitingLookup, WaitingLookups
from lookup_core.errors import ErrorCode
from tests.lookup_core.dimension.dimension_script import SCHEMA, settings, told
from tests.lookup_core.dimension.key_runs import run_of

ADA, BERT = LookupId(1), LookupId(2)
KNOWN = KnownAnswers(settings(default={"name": "nobody"}), SCHEMA, seed=0)


def shared_query() -> tuple[Query, WaitingLookups]:
    """Keys 7 and 8; Ada waits for both, Bert for 8 at his position 5."""
    query = QueryTable().start([run_of(7, 8, lookup=ADA)], 0.0)
    seven, eight = query.flights
    eight.waiters.append((BERT, 5))
    waiting = WaitingLookups()
    waiting.add(WaitingLookup(ADA, ("name",), 9.0, {0: seven, 1: eight}))
    waiting.add(WaitingLookup(BERT, ("name",), 9.0, {5: eight}))
    return query, waiting


def test_rows_are_shared() -> None:
    """Each lookup gets its own keys' rows at its own positions; absences are the default row."""
    query, waiting = shared_query()
    rows = pa.record_batch([pa.array(["row 8"])], SCHEMA.columns)
    landing = Landing.of_rows(2, np.array([1], np.int32), rows=rows, age_ms=0)

    shares = shares_of_rows(landing, waiters_by_lookup(query.flights), waiting=waiting, known=KNOWN)

    of_ada = [answer for lookup, answer in shares if lookup == ADA]
    of_bert = [answer for lookup, answer in shares if lookup == BERT]
    assert told(of_ada) == {0: "default nobody", 1: "fetched row 8"}
    assert told(of_bert) == {5: "fetched row 8"}


def test_failures_are_shared() -> None:
    """Everybody gets the error of the query."""
    query, waiting = shared_query()

    shares = shares_of_failure(query, ErrorCode.FORBIDDEN, waiting=waiting, known=KNOWN, now=1.0)

    assert [(lookup, told([answer])) for lookup, answer in shares] == [
        (ADA, {0: "error forbidden", 1: "error forbidden"}),
        (BERT, {5: "error forbidden"}),
    ]


def test_last_share_ends_a_lookup() -> None:
    """Whose time is over gets one answer of each kind, the last of them marked."""
    flights = {4: Flight(7), 6: Flight(8)}
    lookup = WaitingLookup(ADA, ("name",), 9.0, flights)

    shares = shares_of_expired([lookup], ErrorCode.TIMEOUT, known=KNOWN, now=9.0)

    assert [(told([answer]), is_last) for (_, answer), is_last in shares] == [
        ({4: "timeout timeout", 6: "timeout timeout"}, True)
    ]
