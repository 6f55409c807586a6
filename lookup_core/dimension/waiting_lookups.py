"""Waiting lookups: the lookups with keys in flight, in the order of their deadlines.

A private part of `InFlight`.
"""

from dataclasses import dataclass

from lookup_core.deadlines import Deadlines
from lookup_core.dimension.dimension_events import LookupId
from lookup_core.dimension.flights import Mask, Positions, PostponedKeys
from lookup_core.dimension.numbered_rows import Numbers
from lookup_core.settings import OnMissingSettings


@dataclass(slots=True, eq=False)
class WaitingLookup:
    """A lookup with keys in flight."""

    id: LookupId
    columns: tuple[str, ...]
    deadline_s: float
    waiters: Numbers  # one for each key without an immediate answer, at first
    on_missing: OnMissingSettings | None  # its retries for missing keys; None: no retries
    read_after: float  # monotonic seconds; cached rows that were read until then are no answer
    keys_left: int  # without an answer


@dataclass(frozen=True, slots=True)
class Served:
    """Keys of one lookup that a result answers: its positions, and the keys of the query."""

    lookup: WaitingLookup
    positions: Positions
    ordinals: Positions

    def select(self, chosen: Mask) -> "Served":
        """Some of the keys."""
        return Served(self.lookup, self.positions[chosen], self.ordinals[chosen])


@dataclass(frozen=True, slots=True)
class Recipients:
    """The lookups that get a query's result now, and keys that have another attempt first."""

    served: list[Served]
    postponed: list[PostponedKeys]


class WaitingLookups:
    """Lookups by id, each used once; `keys` of them have no answer yet.

    `deadlines` is for reading.
    """

    def __init__(self) -> None:
        self._lookups: dict[LookupId, WaitingLookup] = {}
        self.deadlines: Deadlines[LookupId] = Deadlines()
        self.keys = 0

    def __len__(self) -> int:
        return len(self._lookups)

    def __getitem__(self, lookup_id: LookupId) -> WaitingLookup:
        return self._lookups[lookup_id]

    def __contains__(self, lookup_id: LookupId) -> bool:
        return lookup_id in self._lookups

    def start(self, lookup: WaitingLookup) -> None:
        """Let a lookup wait."""
        self._lookups[lookup.id] = lookup
        self.keys += lookup.keys_left
        self.deadlines.add(lookup.id, lookup.deadline_s)

    def on_answer(self, lookup_id: LookupId, keys: int) -> bool:
        """Count answered keys; returns whether they were the last ones, and ends the lookup."""
        lookup = self._lookups[lookup_id]
        lookup.keys_left -= keys
        self.keys -= keys
        if lookup.keys_left:
            return False
        self.end(lookup)
        return True

    def end(self, lookup: WaitingLookup) -> None:
        """Remove a lookup."""
        del self._lookups[lookup.id]
        self.keys -= lookup.keys_left
        self.deadlines.discard(lookup.id)

    def expired(self, now: float) -> list[WaitingLookup]:
        """The lookups whose deadline has passed, the earliest first; each must be answered now."""
        expired = []
        while (lookup_id := self.deadlines.pop_due(now)) is not None:
            expired.append(self._lookups[lookup_id])
        return expired

    def all(self) -> list[WaitingLookup]:
        """All lookups."""
        return list(self._lookups.values())

    def check_invariants(self) -> None:
        """For tests: counts and deadlines agree with the lookups."""
        self.deadlines.check_invariants()
        assert self.keys == sum(each.keys_left for each in self._lookups.values())
        assert len(self.deadlines) == len(self._lookups)
        for lookup in self._lookups.values():
            assert self.deadlines.get(lookup.id) == lookup.deadline_s
