"""Which query goes next."""

import pytest

from lookup_core.dimension.batcher import Batcher, ChannelId
from lookup_core.dimension.flight_table import FlightTable
from lookup_core.dimension.query_table import QueryTable, QueryTurns
from lookup_core.errors import ErrorCode
from lookup_core.keys.canonical_keys import KeyId
from lookup_core.protection.backend_guard import BackendGuard
from lookup_core.settings import BatchSettings
from tests.lookup_core.dimension.key_runs import run_of


class Turns(QueryTurns):
    """The turns of flights of their own."""

    def __init__(self, settings: BatchSettings) -> None:
        self.flights = FlightTable()
        batcher, queries = Batcher(settings, self.flights), QueryTable(self.flights)
        super().__init__(batcher, queries, BackendGuard(3))

    def put(self, *keys: int) -> None:
        """Keys that are asked for the first time."""
        for key in keys:
            self.batcher.add(ChannelId(key), run_of(self.flights, key), 0.0)

    def park(self, key: int, *, retry_at: float) -> None:
        """A key that is to be tried again."""
        self.queries.park(self.queries.start([run_of(self.flights, key)], 0.0), retry_at)

    def sent(self, now: float) -> list[KeyId]:
        """The keys of all queries that go now, in their order."""
        keys: list[KeyId] = []
        while (query := self.next_query(now)) is not None:
            keys += self.flights.key_ids(query.flights)
        return keys


@pytest.fixture
def turns() -> Turns:
    """One key a query, three slots."""
    return Turns(BatchSettings(max_keys=1, linger_s=0.5))


def test_new_keys_and_further_tries_have_turns(turns: Turns) -> None:
    """Neither waits for all of the other."""
    turns.put(1, 2)
    turns.park(8, retry_at=0.0)
    turns.park(9, retry_at=0.0)

    assert turns.sent(0.0) == [1, 8, 2]


def test_slots_are_used_by_whoever_is_there(turns: Turns) -> None:
    """Where only one kind is due it has all the slots, and nothing goes beyond them."""
    turns.put(1, 2, 3, 4)

    assert turns.sent(0.0) == [1, 2, 3]
    assert turns.next_due() is None


def test_next_due_is_the_earlier_of_both(turns: Turns) -> None:
    """A retry or the end of the linger, whichever comes first; nothing while nothing is there."""
    assert turns.next_due() is None
    turns.park(9, retry_at=0.7)
    assert turns.next_due() == 0.7
    lingering = Turns(BatchSettings(max_keys=2, linger_s=0.5))
    lingering.park(9, retry_at=0.7)
    lingering.put(1)

    assert lingering.next_due() == 0.5


def test_open_breaker_holds_all(turns: Turns) -> None:
    """While the store is away nothing goes, and nothing is due."""
    turns.put(1)
    for _ in range(3):
        turns.guard.on_failure(ErrorCode.BACKEND_UNAVAILABLE, sent_at=0.0, now=0.0)

    assert (turns.sent(9.0), turns.next_due()) == ([], None)
