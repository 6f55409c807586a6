"""Rows that are read anew for nobody."""

import numpy as np
import pytest

from lookup_core.dimension.batcher import Batcher, ChannelId
from lookup_core.dimension.dimension_events import LookupRequest
from lookup_core.dimension.dimension_state import BackgroundRefresh
from lookup_core.dimension.flight_table import FlightTable, LookupId
from lookup_core.dimension.local_resolver import KeyGroup
from lookup_core.dimension.waiting_lookups import AdmissionLimit, WaitingLookups
from lookup_core.keys.canonical_keys import keys_of_ids
from lookup_core.protection.backend_guard import BackendGuard
from tests.lookup_core.dimension.dimension_script import settings, typed
from tests.lookup_core.dimension.key_runs import run_of

REQUEST = LookupRequest(LookupId(9), ChannelId(3), typed(7, 8), ("name",), 100.0)
OUTDATED = KeyGroup(np.array([0, 1], np.int32), keys_of_ids([7, 8]))


@pytest.fixture
def revalidation() -> BackgroundRefresh:
    """Nothing is being read; two keys may wait, each for 2 s."""
    flights = FlightTable()
    chosen = settings(max_waiting_keys=2)
    room = AdmissionLimit(chosen, WaitingLookups(), Batcher(chosen.batch, flights))
    return BackgroundRefresh(flights, BackendGuard(1), room, timeout_s=2.0)


def test_own_lookups_are_told_by_their_ids(revalidation: BackgroundRefresh) -> None:
    """Each has a negative id of its own, a channel for all of them, and the dimension's time."""
    found = [revalidation.lookup(REQUEST, OUTDATED, 5.0) for _ in range(2)]

    requests = [each[0] for each in found if each is not None]
    assert [request.id for request in requests] == [-1, -2]
    assert {(request.channel, request.deadline_s) for request in requests} == {(-1, 7.0)}


def test_keys_on_their_way_are_not_asked_again(revalidation: BackgroundRefresh) -> None:
    """What is being read already is left out; if that is all, there is no lookup."""
    run_of(revalidation.flights, 7)
    some = revalidation.lookup(REQUEST, OUTDATED, 0.0)
    run_of(revalidation.flights, 8, lookup=2)

    assert some is not None
    assert (some[1].positions.tolist(), list(some[1].keys.ids())) == ([1], [8])
    assert revalidation.lookup(REQUEST, OUTDATED, 0.0) is None


def test_full_room_is_left_to_others(revalidation: BackgroundRefresh) -> None:
    """Where no more keys may wait nothing is read for nobody."""
    many = KeyGroup(np.arange(3, dtype=np.int32), keys_of_ids([7, 8, 9]))

    assert revalidation.lookup(REQUEST, many, 0.0) is None
