"""How many keys may wait."""

import pytest

from lookup_core.dimension.batcher import Batcher, ChannelId
from lookup_core.dimension.flight_table import LookupId
from lookup_core.dimension.waiting_lookups import WaitingLookup, WaitingLookups
from lookup_core.dimension.waiting_room import WaitingRoom
from lookup_core.errors import ErrorCode, Overloaded
from lookup_core.settings import BatchSettings
from tests.lookup_core.dimension.dimension_script import settings
from tests.lookup_core.dimension.key_runs import run_of


@pytest.fixture
def room() -> WaitingRoom:
    """Room for 100 keys."""
    return WaitingRoom(settings(max_waiting_keys=100), WaitingLookups(), Batcher(BatchSettings()))


def queue(room: WaitingRoom, count: int, *, lookup: int) -> None:
    """A lookup waits for so many new keys."""
    run = run_of(*range(count), lookup=lookup)
    room.batcher.add(ChannelId(0), run, 0.0)
    flights = dict(enumerate(run.flights))
    room.waiting.add(WaitingLookup(LookupId(lookup), (), 9.0, flights))


def give_up(room: WaitingRoom, lookup: int) -> None:
    """Nobody waits for these keys any more; they are still queued."""
    left = room.waiting.remove(LookupId(lookup))
    assert left is not None
    for flight in left.flights.values():
        flight.waiters.clear()


def test_keys_are_refused_beyond_the_bound(room: WaitingRoom) -> None:
    """As many as there is room for may wait; one more is told how many do."""
    queue(room, 60, lookup=1)
    room.admit(40)

    with pytest.raises(Overloaded) as caught:
        room.admit(41)

    assert caught.value.code is ErrorCode.OVERLOADED
    assert caught.value.detail == "60 keys wait for customers; at most 100 may"
    assert (room.has_room(40), room.has_room(41)) == (True, False)


def test_queued_keys_take_room_until_they_are_dropped(room: WaitingRoom) -> None:
    """Keys that were given up count as long as few of them are in the queue."""
    queue(room, 10, lookup=1)
    give_up(room, 1)
    room.drop_deserted()
    assert not room.has_room(91)

    queue(room, 1, lookup=2)
    give_up(room, 2)
    room.drop_deserted()

    assert room.has_room(100)
