"""Rows by slot, in Arrow segments: appended whole, merged while small, dropped whole."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.cache.segments import BYTES_BESIDE_ROW, Addresses, RowQueue, Segment, SegmentQueue
from lookup_core.keys.key_index import Slots


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row in all columns of its segment; to be read at once."""

    columns: Sequence[pa.Array]
    at: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where a row is stored, to be kept: no other row is ever found there."""

    era: object  # in which slots and addresses mean the same
    slot: int
    address: int


BYTES_BY_SLOT = 4  # one address each

_ADDRESSES = 2**32 - 1
_NOWHERE = _ADDRESSES
_MANY_DEAD = 0.1  # of a segment's rows: worth a copy of the others where room is short


@dataclass(frozen=True, slots=True)
class Gathered:
    """Rows in the order they are stored; `order[i]` is which of the slots asked for row i is."""

    order: npt.NDArray[np.intp]
    rows: pa.RecordBatch


class RowStore:
    """Rows of one schema for each queue; slots are the caller's numbers, dense from 0."""

    def __init__(
        self,
        schema: pa.Schema,
        *,
        max_segment_bytes: Mapping[RowQueue, int],
        address_count: int = _ADDRESSES,
    ) -> None:
        self.schema = schema
        self._segments: dict[int, Segment] = {}  # {segment id: segment}, by address
        self._starts: Addresses | None = None  # of the segments; None: not known any more
        self._queues = {queue: SegmentQueue(size, {}) for queue, size in max_segment_bytes.items()}
        self._addresses = np.zeros(0, np.uint32)  # by slot
        self._address_count = address_count
        self._next_address = self._next_id = 0
        self._era = object()

    @property
    def row_bytes(self) -> int:
        """What rows and their slots hold in memory."""
        return sum(queue.bytes for queue in self._queues.values())

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
        segment_id, self._next_id = self._next_id, self._next_id + 1
        ids = self._queues[queue].ids
        ids[segment_id] = None
        self._queues[queue].rows += len(slots)
        self._set(segment_id, rows, slots=slots, queue=queue)
        while len(ids) > 1 and self._merge(*[*ids][-2:]):
            pass
        # Of the others one pair at most: what was large for the queue may be small for it by now.
        any(self._merge(*pair) for pair in pairwise([*ids]))

    def gather(self, slots: Slots, names: Sequence[str]) -> Gathered:
        """The rows of slots that have one, duplicates allowed, columns by name."""
        # Copies, also of a single row: a view would hold its segment, which nobody accounts for.
        return (
            self._taken(slots, names) if len(slots) else Gathered(np.arange(0), self._empty(names))
        )

    def row(self, slot: int) -> StoredRow:
        """The row of one slot that has one."""
        segment, at = self._stored(slot)
        return StoredRow(segment.columns, at)

    def place(self, slot: int) -> Place:
        """Where the row of one slot that has one is now."""
        return Place(self._era, slot, self._addresses.item(slot))

    def is_at(self, place: Place) -> bool:
        """Whether the row that was stored there is there still."""
        return place.era is self._era and self._addresses.item(place.slot) == place.address

    def remove(self, slots: Slots) -> None:
        """Forget the rows of slots that have one, each named once."""
        counts = np.bincount(self._numbers(slots), minlength=len(self._segments)).tolist()
        self._addresses[slots] = _NOWHERE
        touched = [item for item, count in zip(self._segments, counts, strict=True) if count]
        for segment, count in zip(self._segments.values(), counts, strict=True):
            segment.dead += count
            self._queues[segment.queue].rows -= count
        for segment_id in touched:
            found = self._segments.get(segment_id)  # None: merged with one before it
            if found is not None and found.dead * 2 > len(found.slots):
                self._compact(segment_id, found)

    def compact(self) -> None:
        """Give back what rows that went still hold, where it is much."""
        for segment_id in [*self._segments]:
            found = self._segments.get(segment_id)  # None: merged with one before it
            if found is not None and found.dead > _MANY_DEAD * len(found.slots):
                self._compact(segment_id, found)

    def move(self, slots: Slots, queue: RowQueue) -> None:
        """Let rows begin anew as the youngest of a queue; they have its columns."""
        if not len(slots):
            return
        segment, _ = self._stored(slots[0].item())
        moved = self._taken(slots, segment.rows.schema.names)
        self.remove(slots)
        self.put(slots[moved.order], moved.rows, queue)

    def is_in(self, slots: Slots, queue: RowQueue) -> npt.NDArray[np.bool_]:
        """Which of these slots, which have rows, have them in one queue."""
        is_own = [segment.queue is queue for segment in self._segments.values()]
        return np.array(is_own, np.bool_)[self._numbers(slots)]

    def oldest_slots(self, queue: RowQueue) -> Slots:
        """The slots whose rows stand in the oldest segment of a queue, oldest first, if any."""
        for segment_id in self._queues[queue].ids:
            return self._live(self._segments[segment_id])
        return np.zeros(0, np.int32)

    def pieces(self) -> Iterator[tuple[RowQueue, Slots, pa.RecordBatch]]:
        """All rows with their slots, as they are stored together."""
        for segment in self._segments.values():
            yield segment.queue, *self._living(segment)

    def resize(self, slot_count: int) -> None:
        """Make room for slots below `slot_count`, which is not less than before."""
        more = np.full(slot_count - len(self._addresses), _NOWHERE, np.uint32)
        self._addresses = np.concatenate((self._addresses, more))

    def renumber(self, kept: Slots, slot_count: int) -> None:
        """Call slot `kept[i]` slot i from now on; these are all that have rows."""
        self._era = object()
        number_of = np.full(len(self._addresses), -1, np.int32)  # of dead rows any number will do
        number_of[kept] = np.arange(len(kept))
        self._addresses = self._addresses[kept]
        self.resize(slot_count)
        for segment in self._segments.values():
            segment.slots = number_of[segment.slots]

    def check_invariants(self) -> None:
        """For tests: every stored row is found in exactly one segment, and the sums add up."""
        live = {key: self._live(segment) for key, segment in self._segments.items()}
        found = np.sort(np.concatenate([np.zeros(0, np.int32), *live.values()]))
        assert found.tolist() == np.flatnonzero(self._addresses != _NOWHERE).tolist()
        ends = [0]
        for key, segment in self._segments.items():
            assert ends[-1] <= segment.start
            ends.append(segment.start + len(segment.slots))
            assert len(live[key]) + segment.dead == len(segment.slots) == segment.rows.num_rows
        assert ends[-1] <= self._next_address <= self._address_count
        for name, queue in self._queues.items():
            own = {key for key, segment in self._segments.items() if segment.queue is name}
            assert own == set(queue.ids)
            assert queue.bytes == sum(self._segments[key].bytes for key in own)
            assert queue.rows == sum(len(live[key]) for key in own)

    def _empty(self, names: Sequence[str]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([], schema=self.schema).select(names)

    def _stored(self, slot: int) -> tuple[Segment, int]:
        address, segments = self._addresses.item(slot), [*self._segments.values()]
        segment = segments[bisect_right(segments, address, key=attrgetter("start")) - 1]
        return segment, address - segment.start

    def _taken(self, slots: Slots, names: Sequence[str]) -> Gathered:
        addresses = self._addresses.take(slots)
        order = np.argsort(addresses)
        addresses = addresses.take(order)
        cuts = [*addresses.searchsorted(self._sorted_starts()).tolist(), len(slots)]
        pieces = [
            segment.rows.select(names).take(pa.array(addresses[begin:end] - segment.start))
            for segment, (begin, end) in zip(self._segments.values(), pairwise(cuts), strict=True)
            if begin < end
        ]
        return Gathered(order, pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces))

    def _set(self, segment_id: int, rows: pa.RecordBatch, *, slots: Slots, queue: RowQueue) -> None:
        before = self._segments.pop(segment_id, None)
        segment = Segment.of(rows, slots, queue, start=self._new_addresses(len(slots)))
        self._segments[segment_id] = segment
        self._starts = None
        self._queues[queue].bytes += segment.bytes - (before.bytes if before else 0)
        self._addresses[slots] = segment.addresses

    def _new_addresses(self, count: int) -> int:
        if self._next_address + count > self._address_count:
            self._close_gaps()
        start = self._next_address
        self._next_address += count
        return start

    def _close_gaps(self) -> None:
        # In order: no new address is one that a later segment has yet.
        self._next_address, self._starts, self._era = 0, None, object()
        for segment in self._segments.values():
            is_live = self._is_live(segment)
            segment.start = self._next_address
            self._addresses[segment.slots[is_live]] = segment.addresses[is_live]
            self._next_address += len(segment.slots)

    def _sorted_starts(self) -> Addresses:
        if self._starts is None:
            starts = [segment.start for segment in self._segments.values()]
            self._starts = np.array(starts, np.uint32)
        return self._starts

    def _numbers(self, slots: Slots) -> npt.NDArray[np.intp]:
        # Which of the segments, in their order, has the row of each slot.
        return self._sorted_starts().searchsorted(self._addresses.take(slots), "right") - 1

    def _is_live(self, segment: Segment) -> npt.NDArray[np.bool_]:
        return self._addresses[segment.slots] == segment.addresses

    def _live(self, segment: Segment) -> Slots:
        return segment.slots[self._is_live(segment)]

    def _pop(self, segment_id: int) -> None:
        segment, self._starts = self._segments.pop(segment_id), None
        queue = self._queues[segment.queue]
        queue.bytes -= segment.bytes
        del queue.ids[segment_id]

    def _merge(self, elder_id: int, younger_id: int) -> bool:
        elder, younger = self._segments[elder_id], self._segments[younger_id]
        count = len(elder.slots) + len(younger.slots)
        merged_bytes = elder.bytes + younger.bytes + BYTES_BESIDE_ROW * count
        is_small = merged_bytes <= self._queues[elder.queue].segment_bytes
        # Sizes at least halve from old to young, so a row is copied a logarithmic number of times.
        if not is_small or 2 * len(younger.slots) < len(elder.slots):
            return False
        self._replace(elder_id, elder, younger)
        self._pop(younger_id)
        return True

    def _compact(self, segment_id: int, segment: Segment) -> None:
        if segment.dead == len(segment.slots):
            self._pop(segment_id)
            return
        self._replace(segment_id, segment)
        # Else segments that few rows outlive would add up, and every gathering visits them.
        ids = list(self._queues[segment.queue].ids)
        at = ids.index(segment_id)
        for elder_id, younger_id in reversed([*pairwise(ids[max(at - 1, 0) : at + 2])]):
            self._merge(elder_id, younger_id)

    def _replace(self, segment_id: int, *old: Segment) -> None:
        # The new segment keeps the place in age of the one that has this id, its rows their order.
        living = [self._living(each) for each in old]
        rows = pa.concat_batches([rows for _, rows in living])
        slots = np.concatenate([slots for slots, _ in living])
        self._set(segment_id, rows, slots=slots, queue=old[0].queue)

    def _living(self, segment: Segment) -> tuple[Slots, pa.RecordBatch]:
        if not segment.dead:
            return segment.slots, segment.rows
        at = np.flatnonzero(self._is_live(segment))
        return segment.slots[at], segment.rows.take(pa.array(at))
