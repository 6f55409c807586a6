"""Single flight: which keys are being fetched, and who waits for each.

A flight belongs to this table, never to a caller: whoever gives up leaves, the others stay. A
flight that an invalidation overtook is detached: it still answers those who wait for it, takes no
newcomers, and what it brings is not kept. Not a queue: order and batches are `batcher`'s business.
"""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NewType

from lookup_core.keys.canonical_keys import KeyId

LookupId = NewType("LookupId", int)
BatchId = NewType("BatchId", int)


@dataclass(slots=True, eq=False)
class Flight:
    """One key on its way; `batch_id` is None while it is queued."""

    key_id: KeyId
    waiters: list[tuple[LookupId, int]] = field(default_factory=list)  # (lookup, position)
    batch_id: BatchId | None = None
    may_keep: bool = True
    postponed_to: float = 0.0  # while a key that had no row waits to be asked again: until when


class FlightTable:
    """The flights that newcomers may join, by key."""

    def __init__(self) -> None:
        self._flights: dict[KeyId, Flight] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def get(self, key_id: KeyId) -> Flight | None:
        """The flight of a key, if one may be joined."""
        return self._flights.get(key_id)

    def join(
        self,
        lookup_id: LookupId,
        key_ids: Sequence[KeyId],
        *,
        positions: Sequence[int],
        deadline_s: float,
    ) -> tuple[list[Flight], list[int]]:
        """Let a lookup wait for keys; returns a flight a key, and which of them are new.

        A key whose next try comes too late for this lookup is asked at once, in a flight of its
        own: the older one goes on for those who have the time, and is not kept.
        """
        flights, new = [], []
        for index, (key_id, position) in enumerate(zip(key_ids, positions, strict=True)):
            flight = self._flights.get(key_id)
            if flight is None or flight.postponed_to >= deadline_s:
                if flight is not None:
                    flight.may_keep = False  # out of the table, an invalidation does not find it
                flight = self._flights[key_id] = Flight(key_id, [(lookup_id, position)])
                new.append(index)
            else:
                flight.waiters.append((lookup_id, position))
            flights.append(flight)
        return flights, new

    def detach(self, key_ids: Iterable[KeyId]) -> None:
        """Let the flights of these keys land without being kept or joined.

        A queued flight has read nothing yet: it stays as it is. A parked one will read anew, so it
        could stay, too; but whoever asks after a change should not wait out a delay that began
        before it.
        """
        for key_id in key_ids:
            flight = self._flights.get(key_id)
            if flight is not None and flight.batch_id is not None:
                flight.may_keep = False
                del self._flights[key_id]

    def detach_all(self) -> None:
        """Detach every flight."""
        self.detach(list(self._flights))

    def leave(self, lookups: AbstractSet[LookupId], flights: Iterable[Flight]) -> list[Flight]:
        """Let lookups wait for these no longer; returns those that nobody waits for now.

        They are out of the table at once, so that a newcomer starts a fresh one.
        """
        deserted = []
        for flight in flights:
            flight.waiters = [waiter for waiter in flight.waiters if waiter[0] not in lookups]
            if not flight.waiters:
                flight.may_keep = False  # out of the table, an invalidation would not find it
                self._forget(flight)
                deserted.append(flight)
        return deserted

    def land(self, flights: Iterable[Flight]) -> None:
        """Take flights out: their keys are answered, whatever the outcome."""
        for flight in flights:
            self._forget(flight)

    def postpone(
        self, flights: Iterable[Flight], lookups: AbstractSet[LookupId], *, until: float
    ) -> None:
        """Keep flights for another try at that time, for those of these lookups that wait."""
        for flight in flights:
            flight.waiters = [waiter for waiter in flight.waiters if waiter[0] in lookups]
            flight.postponed_to = until

    def check_invariants(self) -> None:
        """For tests: whoever joins a flight is answered by it, and may have it kept."""
        for key_id, flight in self._flights.items():
            assert flight.key_id == key_id
            assert flight.waiters
            assert flight.may_keep

    def _forget(self, flight: Flight) -> None:
        # A detached flight's key may have a newer flight by now, which must stay.
        if self._flights.get(flight.key_id) is flight:
            del self._flights[flight.key_id]
