"""Lookups that wait for keys until their deadline, and the admission limit on waiting keys."""

from collections.abc import Iterable, Sized
from dataclasses import dataclass, field

import numpy as np

from lookup_core.deadlines import Deadlines
from lookup_core.dimension.flight_rows import Numbers
from lookup_core.dimension.flight_table import FlightTable, LookupId
from lookup_core.errors import ErrorCode, Overloaded
from lookup_core.settings import DimensionSettings, OnMissingSettings

_UNWANTED_SHARE = 10  # of the limit: few unwanted keys cost less than to look for them


@dataclass(slots=True, eq=False)
class WaitingLookup:
    """A lookup with keys in flight."""

    id: LookupId
    columns: tuple[str, ...]
    deadline_s: float
    waiters: Numbers  # of the flight table, one for each key without an immediate answer, at first
    on_missing: OnMissingSettings | None  # its retries for missing keys; None: no retries
    read_after: float  # monotonic seconds; cached rows that were read until then are no answer
    left: int = field(init=False)  # keys without an answer

    def __post_init__(self) -> None:
        self.left = len(self.waiters)


class WaitingLookups:
    """Lookups by id, each used once, in the order of their deadlines.

    Queued keys count towards the limit: until their turn they take memory, wanted or not.
    """

    def __init__(self, settings: DimensionSettings, queue: Sized) -> None:
        self._queue = queue  # of keys
        self._name = settings.name
        self._max_keys = settings.max_waiting_keys
        self._lookups: dict[LookupId, WaitingLookup] = {}
        self._deadlines: Deadlines[LookupId] = Deadlines()
        self.keys = 0  # without an answer, over all lookups

    def __len__(self) -> int:
        return len(self._lookups)

    def has_room(self, keys: int) -> bool:
        """Whether this many more keys may wait."""
        return max(self.keys, len(self._queue)) + keys <= self._max_keys

    def check_room(self, keys: int) -> None:
        """Raise Overloaded if this many more keys may not wait."""
        if not self.has_room(keys):
            raise Overloaded(
                ErrorCode.OVERLOADED,
                f"{max(self.keys, len(self._queue))} keys wait for {self._name};"
                f" the limit is {self._max_keys}",
            )

    def has_many_unwanted(self) -> bool:
        """Whether it pays off to drop the unwanted queued keys.

        While no query is sent they would add up and keep new keys out.
        """
        return len(self._queue) > 2 * self.keys + self._max_keys // _UNWANTED_SHARE

    def add(self, lookup: WaitingLookup) -> None:
        """Let a lookup wait."""
        self._lookups[lookup.id] = lookup
        self.keys += len(lookup.waiters)
        self._deadlines.add(lookup.id, lookup.deadline_s)

    def get(self, lookup_id: LookupId) -> WaitingLookup:
        """A lookup that waits."""
        return self._lookups[lookup_id]

    def add_waiters(self, lookup_id: LookupId, more: Numbers, flights: FlightTable) -> None:
        """Add waiters for the next attempt for some of a lookup's keys; drops closed ones."""
        lookup = self._lookups[lookup_id]
        lookup.waiters = flights.open_waiters(lookup_id, np.union1d(lookup.waiters, more))

    def answer(self, lookup_id: LookupId, keys: int) -> bool:
        """Count answered keys; returns whether they were the last ones."""
        lookup = self._lookups[lookup_id]
        lookup.left -= keys
        self.keys -= keys
        if lookup.left:
            return False
        self._pop(lookup_id)
        return True

    def compact(self, lookup_ids: Iterable[LookupId], flights: FlightTable) -> None:
        """Forget the answered keys of these lookups where they are most of the keys."""
        for lookup in map(self._lookups.get, lookup_ids):
            if lookup is not None and 2 * lookup.left < len(lookup.waiters):
                lookup.waiters = flights.open_waiters(lookup.id, lookup.waiters)

    def remove(self, lookup_id: LookupId) -> WaitingLookup | None:
        """Remove a lookup; None if it does not wait."""
        return self._pop(lookup_id) if lookup_id in self._lookups else None

    def next_deadline(self) -> float | None:
        """The earliest deadline."""
        return self._deadlines.earliest()

    def expired(self, now: float) -> list[WaitingLookup]:
        """The lookups whose deadline has passed, the earliest first; each must be answered now."""
        expired = []
        while (lookup_id := self._deadlines.pop_due(now)) is not None:
            expired.append(self._lookups[lookup_id])
        return expired

    def latest_deadline(self, lookup_ids: Iterable[LookupId]) -> float:
        """The latest deadline of these lookups, of which there is one at least."""
        return max(self._lookups[lookup_id].deadline_s for lookup_id in lookup_ids)

    def check_invariants(self, flights: FlightTable) -> None:
        """For tests: counts agree with each other and with the flights."""
        self._deadlines.check_invariants()
        assert self.keys == sum(lookup.left for lookup in self._lookups.values())
        assert len(self._deadlines) == len(self._lookups)
        for lookup in self._lookups.values():
            assert self._deadlines.get(lookup.id) == lookup.deadline_s
            positions, _ = flights.left_open(lookup.id, lookup.waiters)
            assert len(set(positions.tolist())) == len(positions) == lookup.left > 0

    def _pop(self, lookup_id: LookupId) -> WaitingLookup:
        lookup = self._lookups.pop(lookup_id)
        self.keys -= lookup.left
        self._deadlines.discard(lookup_id)
        return lookup
