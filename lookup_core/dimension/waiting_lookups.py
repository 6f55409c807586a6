"""Waiting lookups: the lookups with keys in flight, in the order of their deadlines.

A private part of `InFlight`.
"""

from dataclasses import dataclass, field

from lookup_core.deadlines import Deadlines
from lookup_core.dimension.dimension_events import LookupId
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
    keys_left: int = field(init=False)  # without an answer

    def __post_init__(self) -> None:
        self.keys_left = len(self.waiters)


class WaitingLookups:
    """Lookups by id, each used once; `keys` of them have no answer yet."""

    def __init__(self) -> None:
        self._lookups: dict[LookupId, WaitingLookup] = {}
        self._deadlines: Deadlines[LookupId] = Deadlines()
        self.keys = 0

    def __len__(self) -> int:
        return len(self._lookups)

    def __getitem__(self, lookup_id: LookupId) -> WaitingLookup:
        return self._lookups[lookup_id]

    def get(self, lookup_id: LookupId) -> WaitingLookup | None:
        """A lookup; None if it does not wait."""
        return self._lookups.get(lookup_id)

    def start(self, lookup: WaitingLookup) -> None:
        """Let a lookup wait."""
        self._lookups[lookup.id] = lookup
        self.keys += lookup.keys_left
        self._deadlines.add(lookup.id, lookup.deadline_s)

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
        self._deadlines.discard(lookup.id)

    def next_deadline(self) -> float | None:
        """The earliest deadline."""
        return self._deadlines.earliest()

    def expired(self, now: float) -> list[WaitingLookup]:
        """The lookups whose deadline has passed, the earliest first; each must be answered now."""
        expired = []
        while (lookup_id := self._deadlines.pop_due(now)) is not None:
            expired.append(self._lookups[lookup_id])
        return expired

    def all(self) -> list[WaitingLookup]:
        """All lookups."""
        return list(self._lookups.values())

    def check_invariants(self) -> None:
        """For tests: counts and deadlines agree with the lookups."""
        self._deadlines.check_invariants()
        assert self.keys == sum(each.keys_left for each in self._lookups.values())
        assert len(self._deadlines) == len(self._lookups)
        for lookup in self._lookups.values():
            assert self._deadlines.get(lookup.id) == lookup.deadline_s
