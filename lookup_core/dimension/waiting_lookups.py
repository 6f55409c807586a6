"""Which lookups still wait for keys, and until when.

Only accounts: the flights themselves are the flight table's.
"""

import heapq
from dataclasses import dataclass, field

from lookup_core.dimension.flight_table import Flight, LookupId

_SLACK = 64  # deadlines of lookups that are gone; few of them cost less than a clean-up


@dataclass(slots=True)
class WaitingLookup:
    """A lookup with keys in flight; `flights[i]` brings the key at `positions[i]`."""

    id: LookupId
    columns: tuple[str, ...]
    deadline_s: float
    flights: list[Flight] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    unanswered: int = 0

    def unanswered_positions(self) -> list[int]:
        """The keys that no flight has brought yet."""
        pairs = zip(self.flights, self.positions, strict=True)
        return [position for flight, position in pairs if not flight.has_landed]


class WaitingLookups:
    """Lookups by id, each used once, and the order in which their time runs out."""

    def __init__(self) -> None:
        self._lookups: dict[LookupId, WaitingLookup] = {}
        self._deadlines: list[tuple[float, LookupId]] = []  # heap; may name lookups that are gone
        self._keys = 0

    def __len__(self) -> int:
        return len(self._lookups)

    @property
    def keys(self) -> int:
        """How many keys have no answer yet, over all lookups."""
        return self._keys

    def add(self, lookup: WaitingLookup) -> None:
        """Begin to wait."""
        lookup.unanswered = len(lookup.positions)
        self._lookups[lookup.id] = lookup
        self._keys += lookup.unanswered
        heapq.heappush(self._deadlines, (lookup.deadline_s, lookup.id))
        if len(self._deadlines) > 2 * len(self._lookups) + _SLACK:
            self._forget_deadlines()

    def get(self, lookup_id: LookupId) -> WaitingLookup:
        """A lookup that waits."""
        return self._lookups[lookup_id]

    def answer(self, lookup_id: LookupId, count: int) -> bool:
        """Note that so many keys were answered; returns whether that were the last ones."""
        lookup = self._lookups[lookup_id]
        lookup.unanswered -= count
        self._keys -= count
        if not lookup.unanswered:
            del self._lookups[lookup_id]
        return not lookup.unanswered

    def remove(self, lookup_id: LookupId) -> WaitingLookup | None:
        """Stop waiting; None if it did not wait (any more)."""
        lookup = self._lookups.get(lookup_id)
        return None if lookup is None else self._pop(lookup_id)

    def next_deadline(self) -> float | None:
        """When the next lookup's time is over."""
        while self._deadlines and self._deadlines[0][1] not in self._lookups:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def pop_expired(self, now: float) -> list[WaitingLookup]:
        """End the wait of those whose time is over; the earliest deadline comes first."""
        expired = []
        while (deadline_s := self.next_deadline()) is not None and deadline_s <= now:
            expired.append(self._pop(heapq.heappop(self._deadlines)[1]))
        return expired

    def latest_deadline(self, flights: list[Flight]) -> float:
        """Until when somebody waits for any of these flights; somebody does."""
        waiting = {lookup_id for flight in flights for lookup_id, _ in flight.waiters}
        return max(self._lookups[lookup_id].deadline_s for lookup_id in waiting)

    def check_invariants(self) -> None:
        """For tests: the sum of what is unanswered is what the lookups say."""
        assert self._keys == sum(lookup.unanswered for lookup in self._lookups.values())
        for lookup in self._lookups.values():
            assert lookup.unanswered == len(lookup.unanswered_positions()) > 0
            assert (lookup.deadline_s, lookup.id) in self._deadlines

    def _pop(self, lookup_id: LookupId) -> WaitingLookup:
        lookup = self._lookups.pop(lookup_id)
        self._keys -= lookup.unanswered
        return lookup

    def _forget_deadlines(self) -> None:
        # One that lies far ahead would keep its place, however long ago it was answered.
        self._deadlines = [(each.deadline_s, each.id) for each in self._lookups.values()]
        heapq.heapify(self._deadlines)
