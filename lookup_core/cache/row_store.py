"""Rows by slot, kept in Arrow segments: appended whole, merged while small, dropped whole.

A slot's row never changes; a new row for it is a removal and a put. Segments stand in queues, each
in order of age, so that the cache can let the oldest go at once, as in Segcache (Yang, Yue,
Vinayak: NSDI 2021). Not a cache: which rows deserve to stay is the cache's business.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.cache.row_queue import RowQueue
from lookup_core.cache.segment import Segment
from lookup_core.keys.key_index import Slots

BYTES_BY_SLOT = 8  # one location each

_NOWHERE = -1
# About what an entry takes beside its row: else a segment of narrow rows would be half the cache.
_BYTES_BESIDE_ROW = 40
_SEGMENTS_OF_A_QUEUE = 10  # about; more of them would make gathering slow
_MOST_SEGMENT_BYTES = 256 * 1024 * 1024  # far from where the 32-bit offsets of Arrow's text end
_ROW_BITS = 32
_ROW_MASK = (1 << _ROW_BITS) - 1


@dataclass(frozen=True, slots=True)
class Gathered:
    """Rows in the order they are stored; `order[i]` is which of the slots asked for row i is."""

    order: npt.NDArray[np.intp]
    rows: pa.RecordBatch


@dataclass(slots=True)
class _Queue:
    max_segment_bytes: int
    ids: dict[int, None]  # of segments, oldest first
    bytes: int = 0
    rows: int = 0

    @property
    def segment_bytes(self) -> int:
        """How large a segment may become by merging, with what its entries take elsewhere."""
        whole_bytes = self.bytes + _BYTES_BESIDE_ROW * self.rows
        large = max(self.max_segment_bytes, whole_bytes // _SEGMENTS_OF_A_QUEUE)
        return min(large, _MOST_SEGMENT_BYTES)


class RowStore:
    """Rows of one schema for each queue; slots are the caller's numbers, dense from 0."""

    def __init__(self, schema: pa.Schema, *, max_segment_bytes: Mapping[RowQueue, int]) -> None:
        self.schema = schema
        self._segments: dict[int, Segment] = {}  # {segment id: segment}
        self._queues = {queue: _Queue(size, {}) for queue, size in max_segment_bytes.items()}
        self._locations = np.full(0, _NOWHERE, np.int64)  # by slot: segment id << 32 | row
        self._next_id = 0

    @property
    def row_bytes(self) -> int:
        """What rows and their slots hold in memory."""
        return sum(queue.bytes for queue in self._queues.values())

    @property
    def bytes(self) -> int:
        """What rows, their slots and the locations hold in memory."""
        return self.row_bytes + self._locations.nbytes

    def queue_bytes(self, queue: RowQueue) -> int:
        """What the rows of one queue and their slots hold in memory."""
        return self._queues[queue].bytes

    def queue_rows(self, queue: RowQueue) -> int:
        """How many rows stand in one queue."""
        return self._queues[queue].rows

    def set_max_segment_bytes(self, max_segment_bytes: Mapping[RowQueue, int]) -> None:
        """Let segments grow so large from now on."""
        for queue, size in max_segment_bytes.items():
            self._queues[queue].max_segment_bytes = size

    def put(self, slots: Slots, rows: pa.RecordBatch, queue: RowQueue) -> None:
        """Store a row for each slot; the slots have none, and the rows are no slice of others.

        Rows of one queue have the same columns, which are the schema's or some of them.
        """
        if not len(slots):
            return
        self._add(Segment.of(rows, slots, queue))
        ids = self._queues[queue].ids
        while len(ids) > 1 and self._merge(*self._youngest_two(ids)):
            pass

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
            self._queues[segment.queue].rows -= count
        for segment_id in ids.tolist():
            found = self._segments.get(segment_id)  # None: merged with one before it
            if found is not None and found.dead * 2 > len(found.slots):
                self._compact(segment_id, found)

    def move(self, slots: Slots, queue: RowQueue) -> None:
        """Let rows begin anew as the youngest of a queue; they have its columns."""
        if not len(slots):
            return
        names = self._segments[int(self._locations[slots[0]]) >> _ROW_BITS].rows.schema.names
        moved = self.gather(slots, names)
        self.remove(slots)
        self.put(slots[moved.order], moved.rows, queue)

    def is_in(self, slots: Slots, queue: RowQueue) -> npt.NDArray[np.bool_]:
        """Which of these slots have a row in one queue."""
        return np.isin(self._locations[slots] >> _ROW_BITS, list(self._queues[queue].ids))

    def oldest_slots(self, queue: RowQueue) -> Slots:
        """The slots whose rows stand in the oldest segment of a queue, oldest first, if any."""
        for segment_id in self._queues[queue].ids:
            return self._live(segment_id, self._segments[segment_id])
        return np.zeros(0, np.int32)

    def resize(self, slot_count: int) -> None:
        """Make room for slots below `slot_count`, which is not less than before."""
        more = np.full(slot_count - len(self._locations), _NOWHERE, np.int64)
        self._locations = np.concatenate((self._locations, more))

    def renumber(self, kept: Slots, slot_count: int) -> None:
        """Call slot `kept[i]` slot i from now on; these are all that have rows."""
        number_of = np.full(len(self._locations), -1, np.int32)  # of dead rows any number will do
        number_of[kept] = np.arange(len(kept))
        locations = np.full(slot_count, _NOWHERE, np.int64)
        locations[: len(kept)] = self._locations[kept]
        self._locations = locations
        for segment in self._segments.values():
            segment.slots = number_of[segment.slots]

    def check_invariants(self) -> None:
        """For tests: every stored row is found in exactly one segment, and the sums add up."""
        live = {key: self._live(key, segment) for key, segment in self._segments.items()}
        found = np.sort(np.concatenate([np.zeros(0, np.int32), *live.values()]))
        assert found.tolist() == np.flatnonzero(self._locations != _NOWHERE).tolist()
        for key, segment in self._segments.items():
            assert len(live[key]) + segment.dead == len(segment.slots) == segment.rows.num_rows
        for name, queue in self._queues.items():
            own = {key for key, segment in self._segments.items() if segment.queue is name}
            assert own == set(queue.ids)
            assert queue.bytes == sum(self._segments[key].bytes for key in own)
            assert queue.rows == sum(len(live[key]) for key in own)

    def _empty(self, names: Sequence[str]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([], schema=self.schema).select(names)

    def _add(self, segment: Segment) -> None:
        segment_id, self._next_id = self._next_id, self._next_id + 1
        queue = self._queues[segment.queue]
        queue.ids[segment_id] = None
        queue.rows += len(segment.slots)
        self._set(segment_id, segment)

    def _set(self, segment_id: int, segment: Segment) -> None:
        before = self._segments.get(segment_id)
        self._segments[segment_id] = segment
        self._queues[segment.queue].bytes += segment.bytes - (before.bytes if before else 0)
        self._locations[segment.slots] = self._own_locations(segment_id, segment)

    def _own_locations(self, segment_id: int, segment: Segment) -> npt.NDArray[np.int64]:
        return (segment_id << _ROW_BITS) | np.arange(len(segment.slots), dtype=np.int64)

    def _live(self, segment_id: int, segment: Segment) -> Slots:
        is_live = self._locations[segment.slots] == self._own_locations(segment_id, segment)
        return segment.slots[is_live]

    def _pop(self, segment_id: int) -> None:
        segment = self._segments.pop(segment_id)
        queue = self._queues[segment.queue]
        queue.bytes -= segment.bytes
        del queue.ids[segment_id]

    @staticmethod
    def _youngest_two(ids: dict[int, None]) -> tuple[int, int]:
        backwards = reversed(ids)
        younger = next(backwards)
        return next(backwards), younger

    def _merge(self, elder_id: int, younger_id: int) -> bool:
        elder, younger = self._segments[elder_id], self._segments[younger_id]
        count = len(elder.slots) + len(younger.slots)
        merged_bytes = elder.bytes + younger.bytes + _BYTES_BESIDE_ROW * count
        is_small = merged_bytes <= self._queues[elder.queue].segment_bytes
        # Sizes at least halve from old to young, so a row is copied a logarithmic number of times.
        if not is_small or 2 * len(younger.slots) < len(elder.slots):
            return False
        slots = np.concatenate((self._live(elder_id, elder), self._live(younger_id, younger)))
        self._replace(elder_id, slots)
        self._pop(younger_id)
        return True

    def _compact(self, segment_id: int, segment: Segment) -> None:
        live = self._live(segment_id, segment)
        if not len(live):
            self._pop(segment_id)
            return
        self._replace(segment_id, live)
        # Else segments that few rows outlive would add up, and every gathering visits them.
        ids = list(self._queues[segment.queue].ids)
        at = ids.index(segment_id)
        for elder_id, younger_id in reversed([*pairwise(ids[max(at - 1, 0) : at + 2])]):
            self._merge(elder_id, younger_id)

    def _replace(self, segment_id: int, slots: Slots) -> None:
        # The new segment keeps the old one's place in age.
        old = self._segments[segment_id]
        gathered = self.gather(slots, old.rows.schema.names)
        self._set(segment_id, Segment.of(gathered.rows, slots[gathered.order], old.queue))
