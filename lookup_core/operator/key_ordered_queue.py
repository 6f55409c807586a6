"""The element queue that keeps the order of each key: of two records with it, the earlier first.

Otherwise as `unordered_queue`. Keys are told apart by 64-bit hashes: two keys with the same hash
keep an order between them that nobody asked for, which is harmless.
"""

import numpy as np
import numpy.typing as npt

from lookup_core.operator.element_queue import Mark, Positions, Slice, SlotId
from lookup_core.operator.segmented_queue import SegmentedQueue, SlotRows

_WORTH_FORGETTING = 1024  # rows that have left; fewer of them cost less than a clean-up


class KeyOrderedQueue(SegmentedQueue):
    """An `ElementQueue` in which rows of different keys overtake each other."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, OrderOfKeys)

    def try_put(self, element: Slice | Mark) -> SlotId | None:
        """See `ElementQueue`; raises ValueError for a slice without a hash for each row's key."""
        if isinstance(element, Slice):
            hashes = element.key_hashes
            if hashes is None or len(hashes) != element.size:
                raise ValueError("a slice in key order needs key_hashes, one for each row")
        return super().try_put(element)


class OrderOfKeys:
    """A `SegmentOrder`: a completed row waits for open rows of its key that came before it.

    Rows stand in arrays by arrival; `_by_key` lists them by hash, and by arrival for each hash. A
    row that is held back needs no account of its own: what holds it is an open row of its key,
    and when that one completes the whole key is looked at again.
    """

    def __init__(self) -> None:
        self._slots = np.zeros(0, np.int64)  # [rows] ascending
        self._rows = np.zeros(0, np.intp)  # [rows] position in its slot, ascending for each slot
        self._hashes = np.zeros(0, np.uint64)  # [rows]
        self._is_open = np.zeros(0, np.bool_)  # [rows]
        self._has_left = np.zeros(0, np.bool_)  # [rows]
        self._by_key = np.zeros(0, np.intp)  # [rows]
        self._sorted_hashes = np.zeros(0, np.uint64)  # [rows] of `_by_key`

    def add(self, slot: SlotId, element: Slice) -> None:
        """See `SegmentOrder`."""
        hashes = element.key_hashes
        assert hashes is not None
        self._forget_left()
        known, size = len(self._slots), element.size
        self._slots = np.concatenate([self._slots, np.full(size, slot)])
        self._rows = np.concatenate([self._rows, np.arange(size)])
        self._hashes = np.concatenate([self._hashes, hashes])
        self._is_open = np.concatenate([self._is_open, np.ones(size, np.bool_)])
        self._has_left = np.concatenate([self._has_left, np.zeros(size, np.bool_)])
        newest = np.argsort(hashes, kind="stable")
        # Behind what has the same hash: those came before.
        places = np.searchsorted(self._sorted_hashes, hashes[newest], side="right")
        self._by_key = np.insert(self._by_key, places, known + newest)
        self._sorted_hashes = np.insert(self._sorted_hashes, places, hashes[newest])

    def complete(self, slot: SlotId, rows: Positions) -> list[SlotRows]:
        """See `SegmentOrder`."""
        start, stop = np.searchsorted(self._slots, [slot, slot + 1])
        completed = start + np.searchsorted(self._rows[start:stop], rows)
        self._is_open[completed] = False
        leaving = self._free(np.unique(self._hashes[completed]))
        self._has_left[leaving] = True
        slots = self._slots[leaving]
        parts = np.split(leaving, np.flatnonzero(np.diff(slots)) + 1) if len(leaving) else []
        return [(SlotId(int(self._slots[part[0]])), self._rows[part]) for part in parts]

    def held(self) -> list[SlotId]:
        """See `SegmentOrder`."""
        is_held = ~self._is_open & ~self._has_left
        return [SlotId(slot) for slot in np.unique(self._slots[is_held]).tolist()]

    def check_invariants(self) -> None:
        """For tests: the index is sorted and whole, and every row held back has its reason."""
        assert sorted(self._by_key.tolist()) == list(range(len(self._slots)))
        assert (self._hashes[self._by_key] == self._sorted_hashes).all()
        order = list(zip(self._sorted_hashes.tolist(), self._by_key.tolist(), strict=True))
        assert order == sorted(order)
        assert not (self._is_open & self._has_left).any()
        assert not len(self._free(np.unique(self._hashes)))

    def _free(self, hashes: npt.NDArray[np.uint64]) -> Positions:
        """Which rows of these keys are complete, still here, and behind no open one; ascending."""
        starts = np.searchsorted(self._sorted_hashes, hashes, side="left")
        lengths = np.searchsorted(self._sorted_hashes, hashes, side="right") - starts
        firsts = np.cumsum(lengths) - lengths  # of each key, in `members`
        members = self._by_key[np.arange(lengths.sum()) + np.repeat(starts - firsts, lengths)]
        is_open = self._is_open[members]
        opened = np.cumsum(is_open)  # up to and with each member, over all keys
        before = np.repeat(opened[firsts] - is_open[firsts], lengths)
        is_free = (opened == before) & ~self._has_left[members]
        return np.sort(members[is_free])

    def _forget_left(self) -> None:
        # Rows that have left hold nobody back; without this a segment without end would grow.
        count = int(np.count_nonzero(self._has_left))
        if count < max(_WORTH_FORGETTING, len(self._slots) // 2):
            return
        kept = ~self._has_left
        place = np.cumsum(kept) - 1
        is_kept = kept[self._by_key]
        self._by_key = place[self._by_key[is_kept]]
        self._sorted_hashes = self._sorted_hashes[is_kept]
        self._slots, self._rows = self._slots[kept], self._rows[kept]
        self._hashes, self._is_open = self._hashes[kept], self._is_open[kept]
        self._has_left = self._has_left[kept]
