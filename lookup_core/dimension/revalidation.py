"""Lookups that nobody asked for: rows that were answered though they are stale are read anew.

Makes the lookup; that it waits like all others is the state's business.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np

from lookup_core.dimension.batcher import ChannelId
from lookup_core.dimension.dimension_events import LookupRequest
from lookup_core.dimension.flight_table import FlightTable, LookupId
from lookup_core.dimension.known_answers import KeyGroup
from lookup_core.dimension.waiting_room import WaitingRoom
from lookup_core.protection.store_guard import StoreGuard

_CHANNEL = ChannelId(-1)  # all of them take their turns as one channel


@dataclass(frozen=True, slots=True)
class Revalidation:
    """The lookups of one dimension for itself, which get no deliveries."""

    flights: FlightTable
    guard: StoreGuard
    room: WaitingRoom
    timeout_s: float
    _ids: Iterator[int] = field(default_factory=lambda: count(-1, -1))  # all others are positive

    def lookup(
        self, request: LookupRequest, outdated: KeyGroup, now: float
    ) -> tuple[LookupRequest, KeyGroup] | None:
        """What to ask for these keys of a request: those that are not being read; None for none."""
        is_idle = ~self.flights.may_join(outdated.keys.ids())
        idle = np.flatnonzero(is_idle).astype(np.int32)
        if self.guard.is_open or not idle.size or not self.room.has_room(len(idle)):
            return None
        own_id, deadline_s = LookupId(next(self._ids)), now + self.timeout_s
        own = replace(request, id=own_id, channel=_CHANNEL, deadline_s=deadline_s)
        return own, KeyGroup(outdated.positions[idle], outdated.keys.take(idle))
