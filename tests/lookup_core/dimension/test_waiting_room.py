"""How many keys may wait."""

import pytest

from lookup_core.dimension.batcher import Batcher, ChannelId
from lookup_core.dimension.flight_table import FlightTable, LookupId
from lookup_core.dimension.waiting_lookups import AdmissionLimit, WaitingLookup, WaitingLookups
from lookup_core.errors import ErrorCode, Overloaded
from lookup_core.settings import BatchSettings
from tests.lookup_core.dimension.dimension_script import settings
from tests.lookup_core.dimension.key_runs import joined_run


@pytest.fixture
def flights() -> FlightTable:
    """No flight yet."""
    return FlightTable()


@pytest.fixture
def room(flights: FlightTable) -> AdmissionLimit:
    """Room for 100 keys."""
    batcher = Batcher(BatchSettings(), flights)
    return AdmissionLimit(settings(max_waiting_keys=100), WaitingLookups(), batcher)


def queue(room: AdmissionLimit, flights: FlightTable, count: int, *, lookup: int) -> None:
    """A lookup waits for so many new keys."""
    run, waiters = joined_run(flights, *range(count), lookup=lookup)
    room.batcher.add(ChannelId(0), run, 0.0)
    room.waiting.add(WaitingLookup(LookupId(lookup), (), 9.0, waiters))


def give_up(room: AdmissionLimit, flights: FlightTable, lookup: int) -> None:
    """Nobody waits for these keys any more; they are still queued."""
    left = room.waiting.remove(LookupId(lookup))
    assert left is not None
    flights.leave({left.id: left.waiters})


def test_keys_are_refused_beyond_the_bound(room: AdmissionLimit, flights: FlightTable) -> None:
    """As many as there is room for may wait; one more is told how many do."""
    queue(room, flights, 60, lookup=1)
    room.admit(40)

    with pytest.raises(Overloaded) as caught:
        room.admit(41)

    assert caught.value.code is ErrorCode.OVERLOADED
    assert caught.value.detail == "60 keys wait for customers; at most 100 may"
    assert (room.has_room(40), room.has_room(41)) == (True, False)


def test_queued_keys_take_room_until_they_are_dropped(
    room: AdmissionLimit, flights: FlightTable
) -> None:
    """Keys that were given up count as long as few of them are in the queue."""
    queue(room, flights, 10, lookup=1)
    give_up(room, flights, 1)
    room.drop_deserted()
    assert not room.has_room(91)

    queue(room, flights, 1, lookup=2)
    give_up(room, flights, 2)
    room.drop_deserted()

    assert room.has_room(100)
