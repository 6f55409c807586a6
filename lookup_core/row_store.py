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

from lookup_core.key_index import Slots

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
    dead: int = 0

    @property
    def bytes(self) -> int:
        return int(self.rows.get_total_buffer_size()) + self.slots.nbytes


class RowStore:
    """Rows of one schema; slots are the caller's numbers, dense from 0."""

    def __init__(self, schema: pa.Schema, *, max_segment_bytes: int) -> None:
        self.schema = schema
        self._max_segment_bytes = max_segment_bytes
        self._segments: dict[int, _Segment] = {}  # {segment id: segment}, oldest first
        self._locations = np.full(0, _NOWHERE, np.int64)  # by slot: segment id << 32 | row
        self._next_id = 0
        self._segment_bytes = 0

    @property
    def bytes(self) -> int:
        """What rows, their slots and the locations hold in memory."""
        return self._segment_bytes + self._locations.nbytes

    def put(self, slots: Slots, rows: pa.RecordBatch) -> None:
        """Store a row for each slot; the slots have none."""
        if not len(slots):
            return
        self._add(_Segment(rows, slots))
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
            segment = self._segments[segment_id]
            segment.dead += count
            if segment.dead * 2 > len(segment.slots):
                self._compact(segment_id)

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
        assert self._segment_bytes == sum(segment.bytes for segment in self._segments.values())
        for slots, segment in zip(live, self._segments.values(), strict=True):
            assert len(slots) + segment.dead == len(segment.slots) == segment.rows.num_rows

    def _empty(self, names: Sequence[str]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([], schema=self.schema).select(names)

    def _add(self, segment: _Segment) -> None:
        segment_id, self._next_id = self._next_id, self._next_id + 1
        self._segments[segment_id] = segment
        self._segment_bytes += segment.bytes
        self._locations[segment.slots] = self._own_locations(segment_id, segment)

    def _own_locations(self, segment_id: int, segment: _Segment) -> npt.NDArray[np.int64]:
        return (segment_id << _ROW_BITS) | np.arange(len(segment.slots), dtype=np.int64)

    def _live(self, segment_id: int, segment: _Segment) -> Slots:
        is_live = self._locations[segment.slots] == self._own_locations(segment_id, segment)
        return segment.slots[is_live]

    def _pop(self, segment_id: int) -> _Segment:
        segment = self._segments.pop(segment_id)
        self._segment_bytes -= segment.bytes
        return segment

    def _merge_youngest(self) -> None:
        # Sizes at least halve from old to young, so a row is copied a logarithmic number of times.
        while len(self._segments) > 1:
            *_, elder_id, youngest_id = self._segments
            elder, youngest = self._segments[elder_id], self._segments[youngest_id]
            is_small = elder.bytes + youngest.bytes <= self._max_segment_bytes
            if not is_small or 2 * len(youngest.slots) < len(elder.slots):
                return
            slots = np.concatenate((self._live(elder_id, elder), self._live(youngest_id, youngest)))
            merged = self.gather(slots, self.schema.names)
            self._pop(elder_id)
            self._pop(youngest_id)
            self._add(_Segment(merged.rows, slots[merged.order]))

    def _compact(self, segment_id: int) -> None:
        segment = self._segments[segment_id]
        live = self._live(segment_id, segment)
        if not len(live):
            self._pop(segment_id)
            return
        rows = self.gather(live, self.schema.names).rows
        self._segment_bytes -= segment.bytes
        self._segments[segment_id] = compacted = _Segment(rows, live)  # keeps its place in age
        self._segment_bytes += compacted.bytes
        self._locations[live] = self._own_locations(segment_id, compacted)
