"""Cache view: the arrays and rows of a cache as its readers see them, and lookups in them.

A reader may be another process, which reads while the cache changes. See
docs/decisions/039-shared-cache.md for the order of stores and loads on which it relies.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lookup_core.cache.entry_states import MAX_VISITS, Lifetimes, Seconds, StateTable
from lookup_core.compatibility import concat_batches
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.keys.canonical_keys import CanonicalKeys, Hashes, has_number_keys
from lookup_core.keys.key_index import ABSENT, KeyTable, Slots

Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.intp]
Addresses = npt.NDArray[np.uint32]
Tags = npt.NDArray[np.uint64]  # a number for each row of a segment

# Columns of stored rows for their keys; no column name of a dimension contains a NUL.
HASH = "\0hash"
KEY = "\0key"  # bytes; a number is its own hash
_NO_TAGS: Tags = np.zeros(0, np.uint64)


def stored_schema(schema: DimensionSchema, *, is_shared: bool) -> pa.Schema:
    """The columns of stored rows; only readers need the hashes."""
    hidden = [pa.field(HASH, pa.uint64())] if is_shared else []
    if not has_number_keys(schema):
        hidden.append(pa.field(KEY, pa.binary()))
    return pa.schema([*hidden, *schema.columns])


@dataclass(frozen=True, slots=True)
class Gathered:
    """Rows by segment; row i belongs to item `order[i]` of the request."""

    order: Positions
    rows: pa.RecordBatch
    tags: Tags  # one for each row, if requested
    is_whole: bool = False  # the rows are those of all items, in their order


@dataclass(frozen=True, slots=True)
class RowTable:
    """Rows by slot, to be read.

    Another process may change the addresses meanwhile: slots may lead to other rows, or nowhere.
    """

    schema: pa.Schema
    addresses: Addresses  # by slot
    starts: Addresses  # the address of the first row of each segment, ascending
    ends: Addresses  # that behind the last one
    segments: Sequence[pa.RecordBatch]  # each with some columns of the schema, in its order
    is_negative: Sequence[bool]  # for each segment
    selected: dict[tuple[int, tuple[str, ...]], pa.RecordBatch] = field(default_factory=dict)

    def addresses_of(self, slots: Slots) -> Addresses:
        """The addresses of these slots; for ABSENT that of any slot."""
        return self.addresses.take(slots, mode="clip")

    def gather_slots(self, slots: Slots, names: Sequence[str]) -> Gathered:
        """The rows of slots that have one, as `gather` finds them."""
        return self.gather(self.addresses.take(slots), names)

    def gather(
        self,
        addresses: Addresses,
        names: Sequence[str],
        *,
        is_negative: bool | None = None,
        tags: Sequence[Tags] = (),
    ) -> Gathered:
        """The rows at these addresses, duplicates allowed, in these columns.

        `tags` are those of each segment. `is_negative`: from negative segments only, or from others
        only. Addresses without a row there are left out. Rows are copied, even a single one: a view
        would keep its segment in memory, unaccounted.
        """
        if len(self.starts) == 1 and len(addresses):
            whole = self._of_one_segment(addresses, names, is_negative=is_negative, tags=tags)
            if whole is not None:
                return whole
        orders: list[Positions] = []
        pieces: list[pa.RecordBatch] = []
        found_tags: list[Tags] = []
        for at, order in self._by_segment(addresses):
            if is_negative in {None, self.is_negative[at]}:
                rows = addresses.take(order) - self.starts[at]
                orders.append(order)
                pieces.append(self._selected(at, names).take(pa.array(rows)))
                found_tags.append(tags[at].take(rows) if tags else _NO_TAGS)
        if not pieces:
            nothing = pa.RecordBatch.from_pylist([], schema=self.schema).select(names)
            return Gathered(np.arange(0), nothing, _NO_TAGS)
        found = np.concatenate(found_tags)
        return Gathered(np.concatenate(orders), concat_batches(pieces), found)

    def _of_one_segment(
        self,
        addresses: Addresses,
        names: Sequence[str],
        *,
        is_negative: bool | None,
        tags: Sequence[Tags],
    ) -> Gathered | None:
        """The rows if all of them are in the only segment: the usual case of few rows."""
        rows = addresses - self.starts  # addresses before the segment become large numbers
        is_known = rows < self.ends - self.starts
        is_wanted = is_negative in {None, self.is_negative[0]}
        if not is_wanted or np.count_nonzero(is_known) < len(rows):
            return None
        found = self._selected(0, names).take(pa.array(rows))
        found_tags = tags[0].take(rows) if tags else _NO_TAGS
        return Gathered(np.arange(len(rows)), found, found_tags, is_whole=True)

    def _by_segment(self, addresses: Addresses) -> Iterator[tuple[int, Positions]]:
        """The number of each segment that has some of the addresses, and which ones it has."""
        if not len(self.starts):
            return
        numbers = self.starts.searchsorted(addresses, "right") - 1
        # Between segments, and behind the last one, addresses have no row.
        is_known = (numbers >= 0) & (addresses < self.ends.take(numbers, mode="clip"))
        known = np.flatnonzero(is_known)
        # Numbers of 16 bits are sorted by radix.
        of_known = numbers.take(known).astype(np.min_scalar_type(len(self.starts)))
        order = known.take(of_known.argsort(kind="stable"))
        ends = np.cumsum(np.bincount(of_known, minlength=len(self.starts))).tolist()
        for number, (start, end) in enumerate(pairwise([0, *ends])):
            if end > start:
                yield number, order[start:end]

    def _selected(self, at: int, names: Sequence[str]) -> pa.RecordBatch:
        known = (at, tuple(names))
        if known not in self.selected:
            self.selected[known] = self.segments[at].select(names)
        return self.selected[known]


@dataclass(frozen=True, slots=True)
class CacheView:
    """The entries of one cache by slot."""

    keys: KeyTable
    states: StateTable
    rows: RowTable

    def find(self, keys: CanonicalKeys) -> Slots:
        """The slot of each key, ABSENT where there is none; for a view that does not change."""
        parts = keys.parts
        if parts is None:
            return self.keys.find(keys.hashes)

        def is_same_key(slots: Slots, positions: Positions) -> Mask:
            stored = self.rows.gather_slots(slots, [KEY])
            wanted = parts.take(pa.array(positions[stored.order]))
            is_same = np.zeros(len(slots), np.bool_)
            equal = pc.equal(stored.rows.column(0), wanted)
            is_same[stored.order] = equal.to_numpy(zero_copy_only=False)
            return is_same

        return self.keys.find(keys.hashes, is_same_key)

    def is_same(self, other: "CacheView | None") -> bool:
        """Whether both have the same arrays and segments."""
        return (
            other is not None
            and self.keys is other.keys
            and self.states is other.states
            and self.rows is other.rows
        )


_NO_NUMBERS: Addresses = np.zeros(0, np.uint32)
NO_VIEW = CacheView(
    KeyTable(np.zeros(0, np.int32), np.zeros(0, np.uint64)),
    StateTable(_NO_NUMBERS, 1.0, 0),
    RowTable(
        schema=pa.schema([]),
        addresses=_NO_NUMBERS,
        starts=_NO_NUMBERS,
        ends=_NO_NUMBERS,
        segments=[],
        is_negative=[],
    ),
)


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Fresh entries of some keys; entry i is that of key `positions[i]` of the request."""

    positions: Positions
    ages_s: Seconds
    rows: pa.RecordBatch  # the wanted columns; none for negative entries

    def only(self, is_kept: Mask) -> "FoundRows":
        """The selected ones."""
        if np.count_nonzero(is_kept) == len(is_kept):
            return self
        kept = np.flatnonzero(is_kept)
        return FoundRows(self.positions[kept], self.ages_s[kept], self.rows.take(pa.array(kept)))


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
        addresses = view.rows.addresses_of(slots)
        self._fence()
        words = view.states.words_of(slots)
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
            visited = slots.take(rows.positions[counts.take(rows.positions)])
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
            positions, hashes, slots = order, self.keys.hashes, self.slots
            addresses, ages_s = self.addresses, self.ages_s
        else:
            positions = order if chosen is None else chosen.take(order)
            hashes, slots = self.keys.hashes.take(positions), self.slots.take(positions)
            addresses, ages_s = self.addresses.take(positions), self.ages_s.take(positions)
        is_own = gathered.tags == hashes
        if parts is not None:
            own = pc.equal(rows.column(0), parts.take(pa.array(positions)))
            is_own &= own.to_numpy(zero_copy_only=False)
            rows = rows.select(names)
        self.fence()
        is_own &= self.table.addresses_of(slots) == addresses
        return FoundRows(positions, ages_s, rows).only(is_own)
