"""Which lookups still wait for keys, and until when.

Only accounts: the flights themselves are the flight table's.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from lookup_core.dimension.deadlines import Deadlines
from lookup_core.dimension.flight_table import Flight, LookupId


@dataclass(frozen=True, slots=True)
class WaitingLookup:
    """A lookup with keys in flight."""

    id: LookupId
    columns: tuple[str, ...]
    deadline_s: float
    flights: dict[int, Flight]  # {position without an answer: the flight that brings it}


class WaitingLookups:
    """Lookups by id, each used once, and the order in which their time runs out."""

    def __init__(self) -> None:
        self._lookups: dict[LookupId, WaitingLookup] = {}
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
        self._keys += len(lookup.flights)
        self._deadlines.add(lookup.id, lookup.deadline_s)

    def get(self, lookup_id: LookupId) -> WaitingLookup:
        """A lookup that waits."""
        return self._lookups[lookup_id]

    def answer(self, lookup_id: LookupId, positions: Iterable[int]) -> bool:
        """Note that these keys were answered; returns whether they were the last ones."""
        flights = self._lookups[lookup_id].flights
        before = len(flights)
        for position in positions:
            del flights[position]
        self._keys -= before - len(flights)
        if not flights:
            self._pop(lookup_id)
        return not flights

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

    def latest_deadline(self, flights: list[Flight]) -> float:
        """Until when somebody waits for any of these flights; somebody does."""
        waiting = {lookup_id for flight in flights for lookup_id, _ in flight.waiters}
        return max(self._lookups[lookup_id].deadline_s for lookup_id in waiting)

    def check_invariants(self) -> None:
        """For tests: whoever waits for a flight is known to it, and is counted."""
        self._deadlines.check_invariants()
        assert self._keys == sum(len(lookup.flights) for lookup in self._lookups.values())
        assert len(self._deadlines) == len(self._lookups)
        for lookup in self._lookups.values():
            assert lookup.flights
            assert self._deadlines.get(lookup.id) == lookup.deadline_s
            for position, flight in lookup.flights.items():
                assert flight.waiters.count((lookup.id, position)) == 1

    def _pop(self, lookup_id: LookupId) -> WaitingLookup:
        lookup = self._lookups.pop(lookup_id)
        self._keys -= len(lookup.flights)
        self._deadlines.discard(lookup_id)
        return lookup
