"""Queries at the backend and between two tries."""

import numpy as np
import pytest

from lookup_core.dimension.flight_table import BatchId, FlightTable, LookupId
from lookup_core.dimension.query_table import Query, QueryTable
from tests.lookup_core.dimension.key_runs import joined_run, run_of


class Queries(QueryTable):
    """Queries of flights of their own."""

    def __init__(self) -> None:
        self.flights = FlightTable()
        super().__init__(self.flights)

    def send(self, *keys: int, now: float = 0.0) -> Query:
        """A query for new keys."""
        return self.start([run_of(self.flights, *keys)], now)

    def parked(self, key: int, *, retry_at: float) -> Query:
        """A query for one key that waits for its next try."""
        query = self.send(key)
        self.park(query, retry_at)
        return query

    def batch_of(self, key: int) -> BatchId | None:
        """Which query a key is in."""
        flight = self.flights.get(key)
        assert flight is not None
        return flight.batch_id


@pytest.fixture
def table() -> Queries:
    """No query yet."""
    return Queries()


def test_query_has_the_keys_of_its_runs(table: Queries) -> None:
    """The runs' keys stand one after the other, and their flights know their query."""
    runs = [run_of(table.flights, 1, 2), run_of(table.flights, 3, lookup=2)]
    query = table.start(runs, 0.0)

    assert query.keys.to_pydict() == {"id": [1, 2, 3]}
    assert table.flights.key_ids(query.flights) == [1, 2, 3]
    assert [table.batch_of(key) for key in (1, 2, 3)] == [query.id] * 3
    table.check_invariants()


def test_queries_are_counted_until_they_end(table: Queries) -> None:
    """A query is at the backend until it ends, and knows how many were when it was sent."""
    first, second = table.send(1), table.send(2)

    assert (table.in_flight, first.beside, second.beside) == (2, 1, 2)
    assert table.end(first.id)
    assert table.in_flight == 1


def test_query_ends_once(table: Queries) -> None:
    """Whatever still comes for a query that ended is nobody's."""
    query = table.send(1)
    assert table.at_backend(query.id) is query
    table.end(query.id)

    assert not table.end(query.id)
    assert not table.end(BatchId(99))
    assert table.at_backend(query.id) is None


def test_parked_query_holds_no_slot(table: Queries) -> None:
    """Between two tries the slot is free, and nothing can come for the query."""
    query = table.parked(1, retry_at=5.0)

    assert table.at_backend(query.id) is None
    assert (table.in_flight, table.next_retry()) == (0, 5.0)
    table.check_invariants()


def test_parked_query_starts_when_due(table: Queries) -> None:
    """From its time on, and not before, a parked query may start again, and is as old as that."""
    query = table.parked(1, retry_at=5.0)

    assert table.restart_due(4.999) is None
    assert table.restart_due(5.0) is query
    assert (query.sent_at, table.in_flight, table.next_retry()) == (5.0, 1, None)
    assert table.restart_due(9.0) is None


def test_earliest_retry_is_next(table: Queries) -> None:
    """Several parked queries wake up for the first of them; the delay of one is not another's."""
    late, early = table.parked(1, retry_at=7.0), table.parked(2, retry_at=5.0)

    assert table.next_retry() == 5.0
    assert table.restart_due(6.0) is early
    assert table.restart_due(7.0) is late


def test_parked_query_can_be_ended(table: Queries) -> None:
    """A query may end between two tries."""
    query = table.parked(1, retry_at=5.0)

    assert table.end(query.id)
    assert table.next_retry() is None


def test_missed_keys_get_a_query_of_their_own(table: Queries) -> None:
    """Keys that are asked again are parked apart; what landed with them can end without them."""
    query = table.send(1, 2, 3, now=4.0)
    query.failures = 1

    missed = table.split_off(query, np.array([True, False, True]), 9.0)
    table.check_invariants()
    table.end(query.id)

    assert (query.keys.to_pydict(), missed.keys.to_pydict()) == ({"id": [2]}, {"id": [1, 3]})
    assert [table.batch_of(key) for key in (1, 2, 3)] == [missed.id, query.id, missed.id]
    assert (missed.failures, missed.misses, query.misses) == (1, 1, 0)
    assert (table.in_flight, table.retry_at(missed.id)) == (0, 9.0)


def test_restart_ends_the_postponement(table: Queries) -> None:
    """Once a key is asked again, its flight takes newcomers however short their time is."""
    query = table.parked(1, retry_at=5.0)
    table.flights.postpone(query.flights, {LookupId(1)}, until=5.0)

    table.restart_due(5.0)

    flight = table.flights.get(1)
    assert flight is not None
    assert flight.postponed_to == 0.0


def test_only_parked_queries_have_a_next_try(table: Queries) -> None:
    """A query at the backend, and a key that is not in a query yet, wait for no time."""
    waiting, sent = table.parked(1, retry_at=5.0), table.send(2)

    times = [table.retry_at(batch_id) for batch_id in (waiting.id, sent.id, None)]

    assert times == [5.0, None, None]


def test_deserted_queries_end(table: Queries) -> None:
    """Only what is at the backend has to be cancelled there; what is wanted goes on."""
    run, waiters = joined_run(table.flights, 1, 2, 3, 4)
    first, others = run.split(1)
    second, rest = others.split(1)
    waiting, lonely = table.start([first], 0.0), table.start([second], 0.0)
    table.park(waiting, 5.0)
    wanted = table.start([rest], 0.0)

    table.flights.leave({LookupId(1): waiters[:3]})

    assert table.end_deserted({waiting.id, lonely.id, wanted.id}) == [lonely]
    assert (table.in_flight, table.next_retry()) == (1, None)
    table.flights.check_invariants(wanted.flights)
    table.check_invariants()


def test_unwanted_keys_are_left_out_of_halves(table: Queries) -> None:
    """A refused batch goes on in halves of those keys that somebody waits for."""
    run, waiters = joined_run(table.flights, 1, 2, 3, 4)
    query = table.start([run], 0.0)
    table.flights.leave({LookupId(1): waiters[[1]]})

    table.halve(query, 5.0)
    halves = [table.restart_due(5.0), table.restart_due(5.0), table.restart_due(5.0)]

    keys = [None if half is None else half.keys.to_pydict()["id"] for half in halves]
    assert keys == [[1, 3], [4], None]
    table.flights.check_invariants(np.concatenate(table.carried()))


def test_single_key_stays_as_it_is(table: Queries) -> None:
    """One key cannot be halved."""
    table.halve(table.send(7), 5.0)

    half = table.restart_due(5.0)

    assert half is not None
    assert (half.keys.to_pydict(), table.next_retry()) == ({"id": [7]}, None)
