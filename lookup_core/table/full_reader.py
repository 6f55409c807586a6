"""Reader of a full table in shared memory, where an absent key has no row."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from lookup_core.cache.cache_view import NO_ENTRIES, CacheReader, CacheView, Found, FoundRows
from lookup_core.cache.entry_states import Lifetimes
from lookup_core.keys.canonical_keys import CanonicalKeys
from lookup_core.keys.key_index import ABSENT
from lookup_core.settings import CacheSettings

# No row expires, and a negative entry is a key whose row is unknown.
_FOREVER = Lifetimes(CacheSettings(ttl_s=np.inf, negative_ttl_s=0.0))


class TableState(Protocol):
    """What the service tells of the whole table; it changes meanwhile."""

    @property
    def fresh_at(self) -> float:
        """All entries are as fresh as that, in monotonic seconds."""

    @property
    def changes(self) -> int:
        """A number that grows with each change; even while absent keys have no row."""

    @property
    def map_number(self) -> int:
        """The number of the view that is published now."""


class FullReader:
    """Like a `CacheReader`, but keys that are absent from an unchanged table are missing."""

    def __init__(
        self, view: CacheView, state: TableState, fence: Callable[[], None], *, number: int
    ) -> None:
        """Read the view with this number; `fence` orders loads."""
        self._view = view
        self._number = number
        self._state = state
        self._fence = fence
        self._reader = CacheReader(view, _FOREVER, fence)

    def read(self, keys: CanonicalKeys, names: Sequence[str], now: float) -> Found:
        """The rows of the keys, and the keys without one; `now` is monotonic seconds."""
        # What was confirmed since `now` is not younger than `now`.
        changes, age_s = self._state.changes, max(now - self._state.fresh_at, 0.0)
        self._fence()
        if self._state.map_number != self._number:
            # These arrays may lack changes that `changes` and `fresh_at` count.
            keys = keys.take(np.zeros(0, np.int32))
        found = self._reader.read(keys, names, now).rows
        rows = replace(found, ages_s=np.minimum(found.ages_s, age_s))
        missing = rows.positions[:0]
        if len(rows.positions) < keys.size:
            missing = np.delete(np.arange(keys.size), rows.positions)
            slots = self._view.keys.find(keys.hashes.take(missing))
            missing = missing.compress(slots == ABSENT)
            self._fence()
            if changes % 2 or self._state.changes != changes:
                missing = missing[:0]
        absent = FoundRows(missing, np.full(len(missing), age_s), NO_ENTRIES.rows)
        return Found(rows, absent, np.zeros(0, np.int32))
