"""Lookups that wait for keys until their deadline, and the admission limit on waiting keys."""

from collections.abc import Iterable
from dataclasses import dataclass

from lookup_core.dimension.batcher import Batcher
from lookup_core.dimension.deadlines import Deadlines
from lookup_core.dimension.flight_table import FlightTable, LookupId
from lookup_core.dimension.numbered_rows import Numbers
from lookup_core.errors import ErrorCode, Overloaded
from lookup_core.settings import DimensionSettings


@dataclass(frozen=True, slots=True, eq=False)
class WaitingLookup:
    """A lookup with keys in flight."""

    id: LookupId
    columns: tuple[str, ...]
    deadline_s: float
    waiters: Numbers  # [keys that had no answer at once] of the flight table


class WaitingLookups:
    """Lookups by id, each used once, and the order in which their time runs out."""

    def __init__(self) -> None:
        self._lookups: dict[LookupId, WaitingLookup] = {}
        self._left: dict[LookupId, int] = {}  # {lookup: how many keys have no answer yet}
        self._deadlines: Deadlines[LookupId] = Deadlines()
        self._keys = 0

    def __len__(self) -> int:
        return len(self._lookups)

    @property
    def keys(self) -> int:
        """How many keys have no answer yet, over all lookups."""
        return self._keys

    def add(self, lookup: WaitingLookup) -> None:
        """Begin to wait."""
        self._lookups[lookup.id] = lookup
        self._left[lookup.id] = len(lookup.waiters)
        self._keys += len(lookup.waiters)
        self._deadlines.add(lookup.id, lookup.deadline_s)

    def get(self, lookup_id: LookupId) -> WaitingLookup:
        """A lookup that waits."""
        return self._lookups[lookup_id]

    def answer(self, lookup_id: LookupId, keys: int) -> bool:
        """Note that so many keys were answered; returns whether they were the last ones."""
        self._left[lookup_id] -= keys
        self._keys -= keys
        if self._left[lookup_id]:
            return False
        self._pop(lookup_id)
        return True

    def remove(self, lookup_id: LookupId) -> WaitingLookup | None:
        """Stop waiting; None if it did not wait (any more)."""
        return self._pop(lookup_id) if lookup_id in self._lookups else None

    def next_deadline(self) -> float | None:
        """When the next lookup's time is over."""
        return self._deadlines.earliest()

    def pop_expired(self, now: float) -> list[WaitingLookup]:
        """End the wait of those whose time is over; the earliest deadline comes first."""
        expired = []
        while (lookup_id := self._deadlines.pop_due(now)) is not None:
            expired.append(self._pop(lookup_id))
        return expired

    def lasting_beyond(self, time_s: float, lookup_ids: Iterable[LookupId]) -> set[LookupId]:
        """Which of these lookups will still wait after that time."""
        return {each for each in lookup_ids if self._lookups[each].deadline_s > time_s}

    def latest_deadline(self, lookup_ids: Iterable[LookupId]) -> float:
        """Until when one of these lookups waits; there are some."""
        return max(self._lookups[lookup_id].deadline_s for lookup_id in lookup_ids)

    def check_invariants(self, flights: FlightTable) -> None:
        """For tests: whoever waits for a flight is known to it, and is counted."""
        self._deadlines.check_invariants()
        assert self._left.keys() == self._lookups.keys()
        assert self._keys == sum(self._left.values())
        assert len(self._deadlines) == len(self._lookups)
        for lookup in self._lookups.values():
            assert self._deadlines.get(lookup.id) == lookup.deadline_s
            positions, _ = flights.left_open(lookup.id, lookup.waiters)
            assert len(set(positions.tolist())) == len(positions) == self._left[lookup.id] > 0

    def _pop(self, lookup_id: LookupId) -> WaitingLookup:
        lookup = self._lookups.pop(lookup_id)
        self._keys -= self._left.pop(lookup_id)
        self._deadlines.discard(lookup_id)
        return lookup


_RETRY_S = 1.0
_DESERTED_SHARE = 10  # of the keys that may wait; few of them cost less than to look for them


@dataclass(frozen=True, slots=True)
class AdmissionLimit:
    """The bound of one dimension."""

    settings: DimensionSettings
    waiting: WaitingLookups
    batcher: Batcher

    def has_room(self, keys: int) -> bool:
        """Whether so many keys more may wait."""
        return self._held_keys + keys <= self.settings.max_waiting_keys

    def admit(self, keys: int) -> None:
        """Raise Overloaded if they may not."""
        if not self.has_room(keys):
            raise Overloaded(
                ErrorCode.OVERLOADED,
                f"{self._held_keys} keys wait for {self.settings.name}; at most"
                f" {self.settings.max_waiting_keys} may",
                retry_after_s=_RETRY_S,
            )

    def drop_deserted(self) -> None:
        """Forget queued keys that nobody waits for any more, once they are many.

        They would add up while no query is sent, and keep newcomers out.
        """
        slack = self.settings.max_waiting_keys // _DESERTED_SHARE
        if len(self.batcher) > 2 * self.waiting.keys + slack:
            self.batcher.drop_deserted()

    @property
    def _held_keys(self) -> int:
        # Queued keys take memory until their turn, also when nobody waits for them any more.
        return max(self.waiting.keys, len(self.batcher))
