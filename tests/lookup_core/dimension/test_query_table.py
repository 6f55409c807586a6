"""Queries at the backend and between two tries."""

import numpy as np
import pytest

from lookup_core.dimension.flight_table import BatchId
from lookup_core.dimension.query_table import Query, QueryTable
from tests.lookup_core.dimension.key_runs import run_of


@pytest.fixture
def table() -> QueryTable:
    """No query yet."""
    return QueryTable()


def parked(table: QueryTable, *, retry_at: float) -> Query:
    """A query that waits for its next try."""
    query = table.start([run_of(1)], 0.0)
    table.park(query, retry_at)
    return query


def test_query_has_the_keys_of_its_runs(table: QueryTable) -> None:
    """The runs' keys stand one after the other, and their flights know their query."""
    query = table.start([run_of(1, 2), run_of(3)], 0.0)

    assert query.keys.to_pydict() == {"id": [1, 2, 3]}
    assert [(flight.key_id, flight.batch_id) for flight in query.flights] == [
        (1, query.id),
        (2, query.id),
        (3, query.id),
    ]
    table.check_invariants()


def test_queries_are_counted_until_they_end(table: QueryTable) -> None:
    """A query is at the backend until it ends, and knows how many were when it was sent."""
    first, second = table.start([run_of(1)], 0.0), table.start([run_of(2)], 0.0)

    assert (table.in_flight, first.beside, second.beside) == (2, 1, 2)
    assert table.end(first.id)
    assert table.in_flight == 1


def test_query_ends_once(table: QueryTable) -> None:
    """Whatever still comes for a query that ended is nobody's."""
    query = table.start([run_of(1)], 0.0)
    assert table.at_backend(query.id) is query
    table.end(query.id)

    assert not table.end(query.id)
    assert not table.end(BatchId(99))
    assert table.at_backend(query.id) is None


def test_parked_query_holds_no_slot(table: QueryTable) -> None:
    """Between two tries the slot is free, and nothing can come for the query."""
    query = parked(table, retry_at=5.0)

    assert table.at_backend(query.id) is None
    assert (table.in_flight, table.next_retry()) == (0, 5.0)
    table.check_invariants()


def test_parked_query_starts_when_due(table: QueryTable) -> None:
    """From its time on, and not before, a parked query may start again, and is as old as that."""
    query = parked(table, retry_at=5.0)

    assert table.restart_due(4.999) is None
    assert table.restart_due(5.0) is query
    assert (query.sent_at, table.in_flight, table.next_retry()) == (5.0, 1, None)
    assert table.restart_due(9.0) is None


def test_earliest_retry_is_next(table: QueryTable) -> None:
    """Several parked queries wake up for the first of them; the delay of one is not another's."""
    late, early = parked(table, retry_at=7.0), parked(table, retry_at=5.0)

    assert table.next_retry() == 5.0
    assert table.restart_due(6.0) is early
    assert table.restart_due(7.0) is late


def test_parked_query_can_be_ended(table: QueryTable) -> None:
    """A query may end between two tries."""
    query = parked(table, retry_at=5.0)

    assert table.end(query.id)
    assert table.next_retry() is None


def test_missed_keys_get_a_query_of_their_own(table: QueryTable) -> None:
    """Keys that are asked again are parked apart; what landed with them can end without them."""
    query = table.start([run_of(1, 2, 3)], 4.0)
    query.failures = 1

    missed = table.split_off(query, np.array([True, False, True]), 9.0)
    table.check_invariants()
    table.end(query.id)

    assert (query.keys.to_pydict(), missed.keys.to_pydict()) == ({"id": [2]}, {"id": [1, 3]})
    assert [(each.key_id, each.batch_id) for each in missed.flights] == [
        (1, missed.id),
        (3, missed.id),
    ]
    assert (missed.failures, missed.misses, query.misses) == (1, 1, 0)
    assert (table.in_flight, table.retry_at(missed.id)) == (0, 9.0)


def test_restart_ends_the_postponement(table: QueryTable) -> None:
    """Once a key is asked again, its flight takes newcomers however short their time is."""
    query = parked(table, retry_at=5.0)
    query.flights[0].postponed_to = 5.0

    table.restart_due(5.0)

    assert query.flights[0].postponed_to == 0.0


def test_only_parked_queries_have_a_next_try(table: QueryTable) -> None:
    """A query at the backend, and a key that is not in a query yet, wait for no time."""
    waiting, sent = parked(table, retry_at=5.0), table.start([run_of(2)], 0.0)

    times = [table.retry_at(batch_id) for batch_id in (waiting.id, sent.id, None)]

    assert times == [5.0, None, None]


def test_deserted_queries_end(table: QueryTable) -> None:
    """Only what is at the backend has to be cancelled there; what is wanted goes on."""
    waiting = parked(table, retry_at=5.0)
    lonely, wanted = table.start([run_of(2)], 0.0), table.start([run_of(3, 4)], 0.0)
    for flight in (*waiting.flights, *lonely.flights, wanted.flights[0]):
        flight.waiters.clear()

    assert table.end_deserted({waiting.id, lonely.id, wanted.id}) == [lonely]
    assert (table.in_flight, table.next_retry()) == (1, None)
    table.check_invariants()
