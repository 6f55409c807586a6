"""Cache view: the arrays and rows of a cache as its readers see them, and lookups in them.

A reader may be another process, which reads while the cache changes. See
docs/decisions/039-shared-cache.md for the order of stores and loads on which it relies.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lookup_core.cache.entry_states import MAX_VISITS, Lifetimes, Seconds, StateTable
from lookup_core.cache.row_table import RowTable
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.keys.canonical_keys import CanonicalKeys, Hashes, has_number_keys
from lookup_core.keys.key_index import ABSENT, KeyTable, Slots

Mask = npt.NDArray[np.bool_]
Places = npt.NDArray[np.intp]

# Columns of stored rows for their keys; no column name of a dimension contains a NUL.
HASH = "\0hash"
KEY = "\0key"  # bytes; a number is its own hash


def stored_schema(schema: DimensionSchema, *, is_shared: bool) -> pa.Schema:
    """The columns of stored rows; only readers need the hashes."""
    hidden = [pa.field(HASH, pa.uint64())] if is_shared else []
    if not has_number_keys(schema):
        hidden.append(pa.field(KEY, pa.binary()))
    return pa.schema([*hidden, *schema.columns])


@dataclass(frozen=True, slots=True)
class CacheView:
    """The entries of one cache by slot."""

    keys: KeyTable
    states: StateTable
    rows: RowTable

    def is_same(self, other: "CacheView | None") -> bool:
        """Whether both have the same arrays and segments."""
        return (
            other is not None
            and self.keys is other.keys
            and self.states is other.states
            and self.rows is other.rows
        )


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Fresh entries of some keys; entry i is that of key `places[i]` of the request."""

    places: Places
    ages_s: Seconds
    rows: pa.RecordBatch  # the wanted columns; none for negative entries

    def only(self, is_kept: Mask) -> "FoundRows":
        """The selected ones."""
        if np.count_nonzero(is_kept) == len(is_kept):
            return self
        kept = np.flatnonzero(is_kept)
        return FoundRows(self.places[kept], self.ages_s[kept], self.rows.take(pa.array(kept)))


@dataclass(frozen=True, slots=True)
class Found:
    """The answers of a cache to some of n keys."""

    rows: FoundRows
    missing: FoundRows
    visited: Slots  # rows whose visits count


_NOTHING = pa.RecordBatch.from_pylist([], pa.schema([]))
NO_ENTRIES = FoundRows(np.zeros(0, np.intp), np.zeros(0), _NOTHING)


class EntryReader(Protocol):
    """Reads the entries of a cache that another process changes meanwhile."""

    def read(self, keys: CanonicalKeys, names: Sequence[str], now: float) -> Found:
        """The fresh entries of the keys, in these columns; `now` is monotonic seconds."""


class CacheReader:
    """Reads a cache that another process changes meanwhile.

    A key that changes during `read` may be left out, as if it were not cached. Otherwise, each row
    belongs to its key, and was cached when `read` began or later.
    """

    def __init__(self, view: CacheView, lifetimes: Lifetimes, fence: Callable[[], None]) -> None:
        """`fence` orders the loads before it before those behind it."""
        self._view = view
        self._lifetimes = lifetimes
        self._fence = fence
        self._row_hashes = [rows.column(HASH).to_numpy() for rows in view.rows.segments]

    def read(self, keys: CanonicalKeys, names: Sequence[str], now: float) -> Found:
        """The fresh entries of the keys, in these columns; `now` is monotonic seconds."""
        view = self._view
        slots = view.keys.find(keys.hashes)
        # Addresses before states, and again at the end: an entry with the same address all the
        # time has this state, because a slot gets its state before its address.
        addresses = view.rows.of(slots)
        self._fence()
        words = view.states.of(slots)
        ages_s = view.states.ages_s(words, now)
        is_negative = view.states.is_negative(words)
        is_fresh = self._lifetimes.are_fresh(ages_s, keys.hashes, is_negative)
        is_fresh &= slots != ABSENT
        entries = _Entries(
            table=view.rows,
            row_hashes=self._row_hashes,
            fence=self._fence,
            keys=keys,
            slots=slots,
            addresses=addresses,
            ages_s=ages_s,
        )
        if not np.count_nonzero(is_negative):
            rows, missing = entries.verified(is_fresh, names, is_negative=False), NO_ENTRIES
        else:
            rows = entries.verified(is_fresh & ~is_negative, names, is_negative=False)
            missing = entries.verified(is_fresh & is_negative, (), is_negative=True)
        counts = view.states.visits(words) < MAX_VISITS
        visited = slots[:0]
        if np.count_nonzero(counts):  # usually, no further visit counts
            visited = slots.take(rows.places[counts.take(rows.places)])
        return Found(rows, missing, visited)


@dataclass(frozen=True, slots=True)
class _Entries:
    """The supposed entries of keys, before they are verified."""

    table: RowTable
    row_hashes: Sequence[Hashes]  # by segment
    fence: Callable[[], None]
    keys: CanonicalKeys
    slots: Slots
    addresses: npt.NDArray[np.uint32]
    ages_s: Seconds

    def verified(self, which: Mask, names: Sequence[str], *, is_negative: bool) -> FoundRows:
        """The selected entries, of one kind, that belong to their keys, and their rows."""
        are_all = np.count_nonzero(which) == len(which)
        chosen = None if are_all else which.nonzero()[0]
        parts = self.keys.parts
        gathered = self.table.gather(
            self.addresses if chosen is None else self.addresses.take(chosen),
            names if parts is None else [KEY, *names],
            is_negative=is_negative,
            tags=self.row_hashes,
        )
        rows, order = gathered.rows, gathered.order
        if chosen is None and gathered.is_whole:  # the usual case: nothing is left out or moved
            places, hashes, slots = order, self.keys.hashes, self.slots
            addresses, ages_s = self.addresses, self.ages_s
        else:
            places = order if chosen is None else chosen.take(order)
            hashes, slots = self.keys.hashes.take(places), self.slots.take(places)
            addresses, ages_s = self.addresses.take(places), self.ages_s.take(places)
        is_own = gathered.tags == hashes
        if parts is not None:
            own = pc.equal(rows.column(0), parts.take(pa.array(places)))
            is_own &= own.to_numpy(zero_copy_only=False)
            rows = rows.select(names)
        self.fence()
        is_own &= self.table.of(slots) == addresses
        return FoundRows(places, ages_s, rows).only(is_own)
