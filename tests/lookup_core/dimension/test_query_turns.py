"""Which query goes next."""

import pytest

from lookup_core.dimension.batcher import Batcher, ChannelId
from lookup_core.dimension.query_table import QueryTable
from lookup_core.dimension.query_turns import QueryTurns
from lookup_core.errors import ErrorCode
from lookup_core.keys.canonical_keys import KeyId
from lookup_core.protection.store_guard import StoreGuard
from lookup_core.settings import BatchSettings
from tests.lookup_core.dimension.key_runs import run_of


@pytest.fixture
def turns() -> QueryTurns:
    """One key a query, three slots."""
    batcher = Batcher(BatchSettings(max_keys=1, linger_s=0.5))
    return QueryTurns(batcher, QueryTable(), StoreGuard(3))


def queue(turns: QueryTurns, *keys: int) -> None:
    """Keys that are asked for the first time."""
    for key in keys:
        turns.batcher.add(ChannelId(key), run_of(key), 0.0)


def park(turns: QueryTurns, key: int, *, retry_at: float) -> None:
    """A key that is to be tried again."""
    turns.queries.park(turns.queries.start([run_of(key)], 0.0), retry_at)


def sent(turns: QueryTurns, now: float) -> list[KeyId]:
    """The keys of all queries that go now, in their order."""
    keys: list[KeyId] = []
    while (query := turns.next_query(now)) is not None:
        keys += [flight.key_id for flight in query.flights]
    return keys


def test_new_keys_and_further_tries_have_turns(turns: QueryTurns) -> None:
    """Neither waits for all of the other."""
    queue(turns, 1, 2)
    park(turns, 8, retry_at=0.0)
    park(turns, 9, retry_at=0.0)

    assert sent(turns, 0.0) == [1, 8, 2]


def test_slots_are_used_by_whoever_is_there(turns: QueryTurns) -> None:
    """Where only one kind is due it has all the slots, and nothing goes beyond them."""
    queue(turns, 1, 2, 3, 4)

    assert sent(turns, 0.0) == [1, 2, 3]
    assert turns.next_due() is None


def test_next_due_is_the_earlier_of_both(turns: QueryTurns) -> None:
    """A retry or the end of the linger, whichever comes first; nothing while nothing is there."""
    assert turns.next_due() is None
    park(turns, 9, retry_at=0.7)
    assert turns.next_due() == 0.7
    batcher = Batcher(BatchSettings(max_keys=2, linger_s=0.5))
    lingering = QueryTurns(batcher, turns.queries, turns.guard)
    queue(lingering, 1)

    assert lingering.next_due() == 0.5


def test_open_breaker_holds_all(turns: QueryTurns) -> None:
    """While the store is away nothing goes, and nothing is due."""
    queue(turns, 1)
    for _ in range(3):
        turns.guard.on_failure(ErrorCode.UPSTREAM_UNAVAILABLE, sent_at=0.0, now=0.0)

    assert (sent(turns, 9.0), turns.next_due()) == ([], None)
