"""Queries at the backend and between two tries, and the slots that they hold."""

import pytest

from lookup_core.dimension.flight_table import BatchId
from lookup_core.dimension.query_table import Query, QueryTable
from tests.lookup_core.dimension.key_runs import run_of


@pytest.fixture
def table() -> QueryTable:
    """Two slots."""
    return QueryTable(2)


def parked(table: QueryTable, *, retry_at: float) -> Query:
    """A query that waits for its next try."""
    query = table.start([run_of(1)])
    table.park(query, retry_at)
    return query


def test_query_has_the_keys_of_its_runs(table: QueryTable) -> None:
    """The runs' keys stand one after the other, and their flights know their query."""
    query = table.start([run_of(1, 2), run_of(3)])

    assert query.keys.to_pydict() == {"id": [1, 2, 3]}
    assert [(flight.key_id, flight.batch_id) for flight in query.flights] == [
        (1, query.id),
        (2, query.id),
        (3, query.id),
    ]
    table.check_invariants()


def test_queries_take_slots_until_they_end(table: QueryTable) -> None:
    """As many queries as there are slots; the end of one frees its own."""
    first, _ = table.start([run_of(1)]), table.start([run_of(2)])

    assert (table.in_flight, table.has_slot) == (2, False)
    assert table.end(first.id)
    assert (table.in_flight, table.has_slot) == (1, True)


def test_query_ends_once(table: QueryTable) -> None:
    """Whatever still comes for a query that ended is nobody's."""
    query = table.start([run_of(1)])
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
    """From its time on, and not before, a parked query may start again; its tries are counted."""
    query = parked(table, retry_at=5.0)

    assert table.restart_due(4.999) is None
    assert table.restart_due(5.0) is query
    assert (query.attempts, table.in_flight, table.next_retry()) == (2, 1, None)
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


def test_deserted_queries_end(table: QueryTable) -> None:
    """Only what is at the backend has to be cancelled there; what is wanted goes on."""
    waiting = parked(table, retry_at=5.0)
    lonely, wanted = table.start([run_of(2)]), table.start([run_of(3, 4)])
    for flight in (*waiting.flights, *lonely.flights, wanted.flights[0]):
        flight.waiters.clear()

    assert table.end_deserted({waiting.id, lonely.id, wanted.id}) == [lonely.id]
    assert (table.in_flight, table.next_retry()) == (1, None)
    table.check_invariants()
