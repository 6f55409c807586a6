"""Rows by slot, kept in Arrow segments: appended whole, merged while small, dropped whole.

A slot's row never changes; a new row for it is a removal and a put. Segments are in order of age,
so that the cache can let the oldest go at once, as in Segcache (Yang, Yue, Vinayak: NSDI 2021).
Not a cache: which rows deserve to stay is the cache's business.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.keys.key_index import Slots

BYTES_BY_SLOT = 8  # one location each

_NOWHERE = -1
_ROW_BITS = 32
_ROW_MASK = (1 << _ROW_BITS) - 1


@dataclass(frozen=True, slots=True)
class Gathered:
    """Rows in the order they are stored; `order[i]` is which of the slots asked for row i is."""

    order: npt.NDArray[np.intp]
    rows: pa.RecordBatch


@dataclass(slots=True)
class _Segment:
    rows: pa.RecordBatch
    slots: Slots  # [rows] whose row it is; a row is dead when its slot stands elsewhere
    bytes: int
    dead: int = 0

    @classmethod
    def of(cls, rows: pa.RecordBatch, slots: Slots) -> "_Segment":
        return cls(rows, slots, stored_bytes(rows))


def stored_bytes(rows: pa.RecordBatch) -> int:
    """What rows hold in memory once they are stored, with their slots.

    Counts a validity bitmap for each column, and shared buffers as if they were not: merging and
    compacting make them so, and must not take more than was foretold.
    """
    buffers = [buffer for column in rows.columns for buffer in column.buffers()]
    bitmap_bytes = -(-rows.num_rows // 8)  # of the only buffers that may be absent
    slot_bytes = rows.num_rows * np.dtype(np.int32).itemsize
    return slot_bytes + sum(bitmap_bytes if each is None else each.size for each in buffers)


class RowStore:
    """Rows of one schema; slots are the caller's numbers, dense from 0."""

    def __init__(self, schema: pa.Schema, *, max_segment_bytes: int) -> None:
        self.schema = schema
        self._max_segment_bytes = max_segment_bytes
        self._segments: dict[int, _Segment] = {}  # {segment id: segment}, oldest first
        self._locations = np.full(0, _NOWHERE, np.int64)  # by slot: segment id << 32 | row
        self._next_id = 0
        self._row_bytes = 0

    @property
    def row_bytes(self) -> int:
        """What rows and their slots hold in memory."""
        return self._row_bytes

    @property
    def bytes(self) -> int:
        """What rows, their slots and the locations hold in memory."""
        return self._row_bytes + self._locations.nbytes

    def put(self, slots: Slots, rows: pa.RecordBatch) -> None:
        """Store a row for each slot; the slots have none, and the rows are no slice of others."""
        if not len(slots):
            return
        self._add(_Segment.of(rows, slots))
        self._merge_youngest()

    def gather(self, slots: Slots, names: Sequence[str]) -> Gathered:
        """The rows of slots that have one, duplicates allowed, columns by name."""
        locations = self._locations[slots]
        ids, rows = locations >> _ROW_BITS, locations & _ROW_MASK
        if not len(slots):
            return Gathered(np.arange(0), self._empty(names))
        if (ids == ids[0]).all():
            taken = self._segments[int(ids[0])].rows.select(names).take(pa.array(rows))
            return Gathered(np.arange(len(slots)), taken)
        order = np.argsort(ids, kind="stable")
        ids, rows = ids[order], rows[order]
        cuts = [0, *(np.flatnonzero(np.diff(ids)) + 1).tolist(), len(ids)]
        pieces = [
            self._segments[int(ids[start])].rows.select(names).take(pa.array(rows[start:stop]))
            for start, stop in pairwise(cuts)
        ]
        return Gathered(order, pa.concat_batches(pieces))

    def remove(self, slots: Slots) -> None:
        """Forget the rows of slots that have one, each named once."""
        ids, counts = np.unique(self._locations[slots] >> _ROW_BITS, return_counts=True)
        self._locations[slots] = _NOWHERE
        for segment_id, count in zip(ids.tolist(), counts.tolist(), strict=True):
            self._segments[segment_id].dead += count
        for segment_id in ids.tolist():
            segment = self._segments.get(segment_id)  # None: merged with one before it
            if segment is not None and segment.dead * 2 > len(segment.slots):
                self._compact(segment_id, segment)

    def oldest_slots(self) -> Slots:
        """The slots whose rows stand in the oldest segment; empty when nothing is stored."""
        for segment_id, segment in self._segments.items():
            return self._live(segment_id, segment)
        return np.zeros(0, np.int32)

    def resize(self, slot_count: int) -> None:
        """Make room for slots below `slot_count`; never fewer than before."""
        more = np.full(slot_count - len(self._locations), _NOWHERE, np.int64)
        self._locations = np.concatenate((self._locations, more))

    def check_invariants(self) -> None:
        """For tests: every stored row is found in exactly one segment, and the bytes add up."""
        live = [self._live(key, segment) for key, segment in self._segments.items()]
        found = np.sort(np.concatenate(live)) if live else np.zeros(0, np.int32)
        assert found.tolist() == np.flatnonzero(self._locations != _NOWHERE).tolist()
        assert self._row_bytes == sum(segment.bytes for segment in self._segments.values())
        for slots, segment in zip(live, self._segments.values(), strict=True):
            assert len(slots) + segment.dead == len(segment.slots) == segment.rows.num_rows

    def _empty(self, names: Sequence[str]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([], schema=self.schema).select(names)

    def _add(self, segment: _Segment) -> None:
        segment_id, self._next_id = self._next_id, self._next_id + 1
        self._segments[segment_id] = segment
        self._row_bytes += segment.bytes
        self._locations[segment.slots] = self._own_locations(segment_id, segment)

    def _own_locations(self, segment_id: int, segment: _Segment) -> npt.NDArray[np.int64]:
        return (segment_id << _ROW_BITS) | np.arange(len(segment.slots), dtype=np.int64)

    def _live(self, segment_id: int, segment: _Segment) -> Slots:
        is_live = self._locations[segment.slots] == self._own_locations(segment_id, segment)
        return segment.slots[is_live]

    def _pop(self, segment_id: int) -> _Segment:
        segment = self._segments.pop(segment_id)
        self._row_bytes -= segment.bytes
        return segment

    def _merge_youngest(self) -> None:
        while len(self._segments) > 1 and self._merge(*list(self._segments)[-2:]):
            pass

    def _merge(self, elder_id: int, younger_id: int) -> bool:
        elder, younger = self._segments[elder_id], self._segments[younger_id]
        is_small = elder.bytes + younger.bytes <= self._max_segment_bytes
        # Sizes at least halve from old to young, so a row is copied a logarithmic number of times.
        if not is_small or 2 * len(younger.slots) < len(elder.slots):
            return False
        slots = np.concatenate((self._live(elder_id, elder), self._live(younger_id, younger)))
        self._replace(elder_id, slots)
        self._pop(younger_id)
        return True

    def _compact(self, segment_id: int, segment: _Segment) -> None:
        live = self._live(segment_id, segment)
        if not len(live):
            self._pop(segment_id)
            return
        self._replace(segment_id, live)
        # Else segments that few rows outlive would add up, and every gathering visits them.
        ids = list(self._segments)
        at = ids.index(segment_id)
        for elder_id, younger_id in reversed([*pairwise(ids[max(at - 1, 0) : at + 2])]):
            self._merge(elder_id, younger_id)

    def _replace(self, segment_id: int, slots: Slots) -> None:
        # The new segment keeps the old one's place in age.
        gathered = self.gather(slots, self.schema.names)
        segment = _Segment.of(gathered.rows, slots[gathered.order])
        self._row_bytes += segment.bytes - self._segments[segment_id].bytes
        self._segments[segment_id] = segment
        self._locations[segment.slots] = self._own_locations(segment_id, segment)
