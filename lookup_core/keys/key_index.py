"""Key index: open addressing on numpy arrays maps whole batches of keys to slots.

The table stores slots, a dense array their hashes: 4 bytes for a place and 8 for a slot, besides a
small stack of free slots. The data of a slot belongs to the owner of the index.

Linear probing: Knuth, TAOCP vol. 3, 6.4, Algorithm L; removed places are marked and reused.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lookup_core.keys.canonical_keys import Hashes

Slots = npt.NDArray[np.int32]
Positions = npt.NDArray[np.intp]
IsSameKey = Callable[[Slots, Positions], npt.NDArray[np.bool_]]
Zeros = Callable[[int, type[np.generic]], npt.NDArray[Any]]  # allocates (count, type of number)

ABSENT = -1
_EMPTY = -1
_REMOVED = -2
_LEAST_PLACES = 1024
_MAX_LOAD = 0.6  # used and removed places; above, chains become long
_NEW_LOAD = 0.5  # at most, in a new table
_LEAST_SLOTS = _LEAST_PLACES // 2
_SLOTS_STEP = 16  # the number of slots is a multiple
_SLOTS_PER_FREE = 16  # slots for each place in the stack of free slots
_MAX_STEPS = 32  # probed at once
_FEW_KEYS, _FEW_STEPS = 500, 8
_STEPS = np.arange(1, _MAX_STEPS + 1)[:, None]


@dataclass(frozen=True, slots=True)
class KeyTable:
    """The arrays of an index, to find keys.

    Another process may change them meanwhile. It may then find no key, or the slot of another one;
    `CacheReader` verifies what it finds.
    """

    places: Slots  # the slot at each place, or _EMPTY or _REMOVED; a power of two in number
    hashes: Hashes  # by slot

    def find(self, hashes: Hashes, is_same_key: IsSameKey | None = None) -> Slots:
        """The slot of each key, or ABSENT."""
        if len(hashes) == 1 and is_same_key is None:  # avoids the fixed cost of array operations
            return np.array([self.find_one(hashes.item())], np.int32)
        places = self.first_places(hashes)
        slots = self.places.take(places)
        is_match = self._hashes_at(slots) == hashes
        is_match &= slots >= 0
        if is_same_key is not None and is_match.any():
            is_match[is_match] = is_same_key(slots[is_match], np.flatnonzero(is_match))
        rest = (~is_match).nonzero()[0]
        if len(rest):
            continues = rest[slots.take(rest) != _EMPTY]
            slots[rest] = ABSENT
            self._find_further(
                hashes, slots, continues, places=places.take(continues), is_same_key=is_same_key
            )
        return slots

    def find_one(self, hash_: int, is_same_key: Callable[[int], bool] | None = None) -> int:
        """The slot of one key, or ABSENT."""
        places, hashes = self.places, self.hashes
        last = len(places) - 1
        first = hash_ & last
        for place in range(first, first + last):
            slot = places.item(place & last)
            if 0 <= slot < len(hashes):
                is_match = hashes.item(slot) == hash_
                if is_match and (is_same_key is None or is_same_key(slot)):
                    return slot
            elif slot == _EMPTY:
                break
        return ABSENT

    def first_places(self, hashes: Hashes) -> npt.NDArray[np.int64]:
        """Where the chain of each key begins."""
        return hashes.view(np.int64) & (len(self.places) - 1)

    def _hashes_at(self, slots: npt.NDArray[np.integer]) -> Hashes:
        # Undefined for slots below 0. Places may be newer than hashes, and have greater slots.
        return self.hashes.take(slots, mode="clip")

    def _find_further(
        self,
        hashes: Hashes,
        slots: Slots,
        pending: Positions,
        *,
        places: npt.NDArray[np.int64],
        is_same_key: IsSameKey | None,
    ) -> None:
        # Sets the slots of keys behind these places. Probes several steps at once: otherwise the
        # longest chain of the batch determines the number of rounds. Few keys take more steps: for
        # them, the number of array operations counts.
        probed, last = 0, len(self.places) - 1
        count = 2 if len(pending) > _FEW_KEYS else _FEW_STEPS
        while pending.size and probed <= last:
            near = self.places.take((places + _STEPS[:count]) & last)  # [steps, pending]
            is_match = self._hashes_at(near) == hashes.take(pending)
            is_match &= near >= 0
            at = is_match.ravel().nonzero()[0]
            found, positions = near.take(at), pending.take(at % len(pending))
            if is_same_key is not None and found.size:
                is_same = is_same_key(found, positions)
                found, positions = found[is_same], positions[is_same]
            slots[positions] = found
            open_ = (slots.take(pending) == ABSENT).nonzero()[0]
            if not len(open_):
                return
            continues = open_[(near.take(open_, axis=1) != _EMPTY).all(axis=0)]
            pending, places = pending.take(continues), places.take(continues) + count
            probed, count = probed + count, min(2 * count, _MAX_STEPS)


class KeyIndex:
    """Maps keys to slots 0, 1, 2, …; slots are reused after removal.

    Equal hashes are equal keys, unless `is_same_key` compares them.
    """

    def __init__(self, zeros: Zeros = np.zeros) -> None:
        """`zeros` allocates the arrays of `table`."""
        self._zeros = zeros
        self.table = KeyTable(self._places(_LEAST_PLACES), zeros(_LEAST_SLOTS, np.uint64))
        self._next_slot = 0  # it and all later ones were never used
        # A stack of some slots that were removed; a search of the table finds the others.
        self._free: Slots = np.empty(_LEAST_SLOTS // _SLOTS_PER_FREE, np.int32)
        self._free_count = 0
        self._used = 0
        self._removed = 0

    def __len__(self) -> int:
        return self._used

    @property
    def slot_count(self) -> int:
        """The number of slots, used or free: the length of arrays by slot."""
        return len(self.table.hashes)

    @property
    def bytes(self) -> int:
        """The memory of the index."""
        return self.table.places.nbytes + self.table.hashes.nbytes + self._free.nbytes

    def more_slots(self, count: int, *, kept: int) -> int:
        """The slots that `count` insertions add, if `kept` keys are left before them."""
        return self._slots_for(kept + count) - self.slot_count

    def more_bytes(self, count: int, *, kept: int) -> int:
        """The bytes that `count` insertions add, as above."""
        more_places = self._places_for(count, kept=kept) - len(self.table.places)
        return 4 * more_places + _bytes_of(self.more_slots(count, kept=kept))

    @staticmethod
    def least_slots(count: int) -> int:
        """The slots of a new index for this many keys."""
        return max(_LEAST_SLOTS, _rounded_slots(count))

    @staticmethod
    def least_bytes(count: int) -> int:
        """The memory of such an index."""
        return _bytes_of(KeyIndex.least_slots(count)) + 4 * _least_places(count)

    def insert(self, hashes: Hashes) -> Slots:
        """Add distinct, absent keys; returns their slots."""
        if not self._has_places(len(hashes)):
            self._make_table(self._places_for(len(hashes), kept=self._used), self.used_slots())
        slots = self._allocate(len(hashes))
        self.table.hashes[slots] = hashes
        self._place(slots)
        self._used += len(slots)
        return slots

    def remove(self, slots: Slots) -> None:
        """Remove the keys in these distinct, used slots."""
        last = len(self.table.places) - 1
        pending, places = slots, self.table.first_places(self.table.hashes[slots])
        while pending.size:
            is_match = self.table.places[places] == pending
            self.table.places[places[is_match]] = _REMOVED
            pending, places = pending[~is_match], (places[~is_match] + 1) & last
        self._used -= len(slots)
        self._removed += len(slots)
        slots = slots[: len(self._free) - self._free_count]
        self._free[self._free_count : self._free_count + len(slots)] = slots
        self._free_count += len(slots)

    def shrink(self) -> Slots:
        """Rebuild in the least size; returns the former slots in the order of the new ones."""
        kept = np.sort(self.used_slots())
        slot_count = self.least_slots(len(kept))
        hashes = self._zeros(slot_count, np.uint64)
        hashes[: len(kept)] = self.table.hashes[kept]
        self.table = KeyTable(self.table.places, hashes)
        self._next_slot, self._free_count = len(kept), 0
        self._free = np.empty(slot_count // _SLOTS_PER_FREE, np.int32)
        self._make_table(_least_places(len(kept)), np.arange(len(kept), dtype=np.int32))
        return kept

    def used_slots(self) -> Slots:
        """All slots with a key, in no order."""
        return self.table.places[self.table.places >= 0]

    def hashes_of(self, slots: Slots) -> Hashes:
        """The hashes of the keys in these slots."""
        return self.table.hashes[slots]

    def check_invariants(self) -> None:
        """For tests: used and free slots are distinct and complete, and counts match."""
        used = self.used_slots()
        assert len(np.unique(used)) == len(used) == self._used
        assert self._used <= self._next_slot <= self.slot_count
        free = self._free[: self._free_count]
        assert len(np.unique(free)) == len(free)
        assert not len(np.intersect1d(free, used))
        assert (free < self._next_slot).all()
        assert self._removed == int((self.table.places == _REMOVED).sum())
        assert (self._used + self._removed) < len(self.table.places)

    def _places(self, count: int) -> Slots:
        places: Slots = self._zeros(count, np.int32)
        places.fill(_EMPTY)
        return places

    def _allocate(self, count: int) -> Slots:
        if self.slot_count - self._used < count:
            self._add_slots(self._slots_for(self._used + count))
        reused = min(count, self._free_count)
        self._free_count -= reused
        slots = self._free[self._free_count : self._free_count + reused]
        first = self._next_slot
        self._next_slot = min(first + count - reused, self.slot_count)
        slots = np.concatenate((slots, np.arange(first, self._next_slot, dtype=np.int32)))
        if len(slots) == count:
            return slots
        is_free = np.ones(self.slot_count, np.bool_)
        is_free[self.used_slots()] = is_free[slots] = False
        free = np.flatnonzero(is_free).astype(np.int32)
        more, left = np.split(free, [count - len(slots)])
        self._free_count = min(len(left), len(self._free))
        self._free[: self._free_count] = left[: self._free_count]
        return np.concatenate((slots, more))

    def _slots_for(self, count: int) -> int:
        slots = self.slot_count
        # A quarter more, not twice as many: unused slots take memory, too.
        return slots if count <= slots else _rounded_slots(max(slots + slots // 4, count))

    def _add_slots(self, slot_count: int) -> None:
        before = self.slot_count
        hashes = self._zeros(slot_count, np.uint64)
        hashes[:before] = self.table.hashes
        self.table = KeyTable(self.table.places, hashes)
        free = np.empty(slot_count // _SLOTS_PER_FREE, np.int32)
        free[: self._free_count] = self._free[: self._free_count]
        self._free = free

    def _has_places(self, count: int) -> bool:
        return self._used + self._removed + count <= len(self.table.places) * _MAX_LOAD

    def _places_for(self, count: int, *, kept: int) -> int:
        places = len(self.table.places)
        # A key that is removed before the insertions leaves a marked place, which counts as used.
        while not self._has_places(count) and kept + count > places * _NEW_LOAD:
            places *= 2
        return places

    def _make_table(self, place_count: int, slots: Slots) -> None:
        self.table = KeyTable(self._places(place_count), self.table.hashes)
        self._removed = 0
        places = self.table.first_places(self.table.hashes.take(slots))
        order = np.argsort(places)
        nth = np.arange(len(slots))
        # Ordered by first place, each slot is at its first place or right behind the previous one.
        places = np.maximum.accumulate(places.take(order) - nth) + nth
        within = int(places.searchsorted(place_count))
        self.table.places[places[:within]] = slots.take(order[:within])
        self._place(slots.take(order[within:]))  # beyond the end

    def _place(self, slots: Slots) -> None:
        last = len(self.table.places) - 1
        pending, places = slots, self.table.first_places(self.table.hashes[slots])
        while pending.size:
            before = self.table.places[places]
            is_free = before < 0
            self.table.places[places[is_free]] = pending[is_free]  # the last write wins
            has_won = is_free & (self.table.places[places] == pending)
            self._removed -= int(np.count_nonzero(before[has_won] == _REMOVED))
            pending, places = pending[~has_won], (places[~has_won] + 1) & last


def _bytes_of(slots: int) -> int:
    """Memory by slot: the hashes and the stack; `slots` is a multiple of `_SLOTS_STEP`."""
    return 8 * slots + 4 * (slots // _SLOTS_PER_FREE)


def _rounded_slots(slots: int) -> int:
    return -(-slots // _SLOTS_STEP) * _SLOTS_STEP


def _least_places(count: int) -> int:
    places = _LEAST_PLACES
    while count > places * _NEW_LOAD:
        places *= 2
    return places
