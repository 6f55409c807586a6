"""Row store of a cache: rows by slot, in Arrow segments that are merged, compacted and dropped.

Knows neither keys nor lifetimes. Each queue of S3-FIFO has segments of its own.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.cache.row_segments import RowQueue, Segment, SegmentQueue, stored_bytes
from lookup_core.cache.row_table import Addresses, Gathered, RowTable
from lookup_core.compatibility import concat_batches
from lookup_core.keys.key_index import Slots, Zeros

BYTES_BY_SLOT = 4  # one address each

_ADDRESSES = 2**32 - 1
_NOWHERE = _ADDRESSES
_MAX_DEAD_SHARE = 0.5  # of a segment's rows
_MAX_DEAD_SHARE_IF_FULL = 0.1  # without room, compaction pays off earlier
_LEAST_PARTS = 2
_ROOMY_RATIO, _CROWDED_RATIO = 8, 2  # of neighbours that are merged, at most
_QUIET_RATIO = 64  # when no more rows come: each segment costs a read some 20 microseconds
# The number of new segments that merge at once: each row is copied once per level. The eldest has a
# third of their rows at most. With a quarter, segments of slowly falling sizes would add up.
_FAN_IN, _ELDER_PARTS = 4, 3
# Of rows that become one segment when no more come, which takes some 60 ms, and the least share of
# new ones. From several segments, a large read takes twice as long.
_WHOLE_BYTES, _WHOLE_SHARE = 64 * 1024 * 1024, 1 / 8
_SMALL_BYTES = 1024 * 1024  # of a new segment, which is not worth a file of its own


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row in all columns of its segment; valid until the store changes."""

    columns: Sequence[pa.Array]
    at: int


@dataclass(frozen=True, slots=True)
class Place:
    """The location of a row; it never leads to another row, so that it can be kept."""

    era: object  # in which slots and addresses keep their meaning
    slot: int
    address: int


def _as_it_is(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows


def _no_fence() -> None:
    """Order nothing: there are no other readers."""


class RowStore:
    """Rows of one schema by queue and slot; slots are numbers of the caller, dense from 0."""

    def __init__(
        self,
        schema: pa.Schema,
        *,
        unit_bytes: Mapping[RowQueue, int],
        keep: Callable[[pa.RecordBatch], pa.RecordBatch] = _as_it_is,
        zeros: Zeros = np.zeros,
        fence: Callable[[], None] = _no_fence,
        address_count: int = _ADDRESSES,
    ) -> None:
        """Store the rows of segments by `keep`, and addresses in arrays of `zeros`.

        `fence` orders stores for readers in other processes.
        """
        self.schema = schema
        self._keep = keep
        self._zeros = zeros
        self._fence = fence
        self._segments: dict[int, Segment] = {}  # {segment id: segment}, by address
        self._table: RowTable | None = None  # None: to be computed
        self._kept_table: RowTable | None = None
        self.queues = {queue: SegmentQueue(size, {}) for queue, size in unit_bytes.items()}
        self.is_roomy = False  # whether no eviction is near; set by the owner
        self._addresses: Addresses = zeros(0, np.uint32)  # by slot
        self._address_count = address_count
        self._next_address = self._next_id = 0
        self._era = object()
        self._to_move: set[int] = set()  # ids of segments

    @property
    def row_bytes(self) -> int:
        """Memory of all rows and their slots."""
        return sum(queue.bytes for queue in self.queues.values())

    def put(
        self, slots: Slots, rows: pa.RecordBatch, queue: RowQueue, *, is_kept: bool = True
    ) -> None:
        """Store one row per slot; the slots are empty, and `rows` is no slice of a larger batch.

        All rows of one queue have the same columns, a subset of the schema's. Without `is_kept`,
        readers may see the rows after `settle` only: then many small segments cost few copies.
        """
        if not len(slots):
            return
        segment_id, self._next_id = self._next_id, self._next_id + 1
        ids = self.queues[queue].ids
        ids[segment_id] = None
        self.queues[queue].rows += len(slots)
        self._set(segment_id, rows, slots=slots, queue=queue, is_kept=is_kept)
        if is_kept or not self.is_roomy:
            self._merge_pairs(queue)
            return
        while self._merge_run([*ids]):
            pass

    def settle(self, *, is_quiet: bool) -> None:
        """Let readers see all rows; if no more come for now, merge them into few segments."""
        for queue, known in self.queues.items():
            if is_quiet:
                self._merge_pairs(queue, _QUIET_RATIO)
                self._merge_whole([*known.ids])
            new = [each for each in known.ids if not self._segments[each].is_kept]
            if new:
                self._replace(new[0], *(self._segments[each] for each in new))
                for each in new[1:]:
                    self._pop(each)

    def begin_move(self) -> None:
        """Let `move_next` keep each segment again that is kept now."""
        self._to_move = {each for each, segment in self._segments.items() if segment.is_kept}

    def move_next(self) -> bool:
        """Keep the rows of one more segment again; false once all are kept."""
        while self._to_move:
            segment = self._segments.get(self._to_move.pop())
            if segment is not None and segment.is_kept:  # else it was merged meanwhile
                segment.rows = self._keep(segment.rows)
                segment.columns = segment.rows.columns
                self._forget_tables(segment)
                return True
        return False

    @property
    def table(self) -> RowTable:
        """The rows, to be read until the next change of segments or slots."""
        if self._table is None:
            self._table = self._table_of([*self._segments.values()])
        return self._table

    @property
    def is_used(self) -> npt.NDArray[np.bool_]:
        """Which slots have a row."""
        return self._addresses != _NOWHERE

    @property
    def kept_table(self) -> RowTable:
        """The rows that readers see."""
        if self._kept_table is None:
            kept = [segment for segment in self._segments.values() if segment.is_kept]
            self._kept_table = self._table_of(kept)
        return self._kept_table

    def gather(self, slots: Slots, names: Sequence[str]) -> Gathered:
        """The rows of slots that have one, duplicates allowed: see `RowTable`."""
        return self.table.gather(self._addresses.take(slots), names)

    def row(self, slot: int) -> StoredRow:
        """The row of one slot that has one."""
        segment, at = self._stored(slot)
        return StoredRow(segment.columns, at)

    def place(self, slot: int) -> Place:
        """The location of the row of one slot that has one."""
        return Place(self._era, slot, self._addresses.item(slot))

    def is_at(self, place: Place) -> bool:
        """Whether the row of this place is still there."""
        return place.era is self._era and self._addresses.item(place.slot) == place.address

    def remove(self, slots: Slots) -> None:
        """Remove the rows of distinct slots that have one."""
        counts = np.bincount(self._numbers(slots), minlength=len(self._segments)).tolist()
        self._addresses[slots] = _NOWHERE
        self._fence()  # before the slots get other keys
        for segment, count in zip(self._segments.values(), counts, strict=True):
            segment.dead += count
            self.queues[segment.queue].rows -= count
        self.compact(_MAX_DEAD_SHARE)

    def compact(self, max_dead_share: float = _MAX_DEAD_SHARE_IF_FULL) -> None:
        """Free the memory of removed rows, in segments where their share is larger."""
        for segment_id, segment in [*self._segments.items()]:
            has_many_dead = segment.dead > max_dead_share * len(segment.slots)
            # Compaction of a former segment may have merged this one.
            if has_many_dead and self._segments.get(segment_id) is segment:
                self._compact(segment_id, segment)

    def move(self, slots: Slots, queue: RowQueue) -> None:
        """Make rows the youngest of a queue that has the same columns."""
        if not len(slots):
            return
        segment, _ = self._stored(slots[0].item())
        moved = self.gather(slots, segment.rows.schema.names)
        self.remove(slots)
        self.put(slots[moved.order], moved.rows, queue)

    def is_in(self, slots: Slots, queue: RowQueue) -> npt.NDArray[np.bool_]:
        """Which of these slots, all of which have rows, have them in one queue."""
        is_own = [segment.queue is queue for segment in self._segments.values()]
        return np.array(is_own, np.bool_)[self._numbers(slots)]

    def split_oldest(self, queue: RowQueue) -> None:
        """Divide the oldest segment of a queue if it has grown in roomier times."""
        ids = self.queues[queue].ids
        oldest_id = next(iter(ids), None)
        if oldest_id is None:
            return
        segment = self._segments[oldest_id]
        live_count = len(segment.slots) - segment.dead
        count = min(-(-segment.total_bytes // self._segment_bytes(queue)), live_count)
        if count < _LEAST_PARTS:
            return
        slots, rows = self._live_part(segment)
        younger = [each for each in ids if each != oldest_id]
        self._pop(oldest_id)
        for part in np.array_split(np.arange(len(slots)), count):
            segment_id, self._next_id = self._next_id, self._next_id + 1
            ids[segment_id] = None
            self._set(segment_id, rows.take(pa.array(part)), slots=slots[part], queue=queue)
        for each in younger:  # behind the parts
            ids[each] = ids.pop(each)

    def oldest_slots(self, queue: RowQueue) -> Slots:
        """The slots of a queue's oldest segment, oldest first; none if the queue is empty."""
        for segment_id in self.queues[queue].ids:
            return self._live_slots(self._segments[segment_id])
        return np.zeros(0, np.int32)

    def pieces(self) -> Iterator[tuple[RowQueue, Slots, pa.RecordBatch]]:
        """The queue, slots and rows of each segment."""
        for segment in self._segments.values():
            yield segment.queue, *self._live_part(segment)

    def resize(self, slot_count: int) -> None:
        """Make room for slots below `slot_count`, which never decreases here."""
        self._set_addresses(self._addresses, slot_count)

    def renumber(self, kept: Slots, slot_count: int) -> None:
        """Rename slot `kept[i]`, for all slots that have rows, to slot i."""
        self._era = object()
        number_of = np.full(len(self._addresses), -1, np.int32)  # any number does for dead rows
        number_of[kept] = np.arange(len(kept))
        self._set_addresses(self._addresses[kept], slot_count)
        for segment in self._segments.values():
            segment.slots = number_of[segment.slots]

    def check_invariants(self) -> None:
        """For tests: every row is in exactly one segment, and the sums agree."""
        live = {key: self._live_slots(segment) for key, segment in self._segments.items()}
        found = np.sort(np.concatenate([np.zeros(0, np.int32), *live.values()]))
        assert found.tolist() == np.flatnonzero(self._addresses != _NOWHERE).tolist()
        ends = [0]
        for key, segment in self._segments.items():
            assert ends[-1] <= segment.start
            ends.append(segment.start + len(segment.slots))
            assert len(live[key]) + segment.dead == len(segment.slots) == segment.rows.num_rows
            assert len(live[key])  # else eviction would find nothing to remove, for ever
        assert ends[-1] <= self._next_address <= self._address_count
        for name, queue in self.queues.items():
            own = {key for key, segment in self._segments.items() if segment.queue is name}
            assert own == set(queue.ids)
            assert queue.bytes == sum(self._segments[key].bytes for key in own)
            assert queue.rows == sum(len(live[key]) for key in own)

    def _stored(self, slot: int) -> tuple[Segment, int]:
        address, segments = self._addresses.item(slot), [*self._segments.values()]
        segment = segments[bisect_right(segments, address, key=attrgetter("start")) - 1]
        return segment, address - segment.start

    def _table_of(self, segments: Sequence[Segment]) -> RowTable:
        starts = np.array([segment.start for segment in segments], np.uint32)
        sizes = np.array([len(segment.slots) for segment in segments], np.uint32)
        return RowTable(
            *(self.schema, self._addresses, starts, starts + sizes),
            segments=[segment.rows for segment in segments],
            is_negative=[segment.queue is RowQueue.NEGATIVE for segment in segments],
        )

    def _set(
        self,
        segment_id: int,
        rows: pa.RecordBatch,
        *,
        slots: Slots,
        queue: RowQueue,
        is_kept: bool = True,
    ) -> None:
        before = self._segments.pop(segment_id, None)
        if self._next_address + len(slots) > self._address_count:
            self._close_gaps()
        rows = self._keep(rows) if is_kept else rows
        segment = Segment(
            start=self._next_address,
            rows=rows,
            slots=slots,
            queue=queue,
            bytes=stored_bytes(rows),
            columns=rows.columns,
            is_kept=is_kept,
        )
        self._next_address += len(slots)
        self._segments[segment_id] = segment
        self._forget_tables(segment, before)
        self.queues[queue].bytes += segment.bytes - (before.bytes if before else 0)
        self._fence()  # behind the hashes and states of the slots
        self._addresses[slots] = segment.addresses

    def _close_gaps(self) -> None:
        # In order, so that no new address is still in use by a later segment.
        self._next_address, self._era = 0, object()
        self._set_addresses(self._addresses, len(self._addresses))  # readers have the former ones
        for segment in self._segments.values():
            is_live = self._is_live(segment)
            segment.start = self._next_address
            self._addresses[segment.slots[is_live]] = segment.addresses[is_live]
            self._next_address += len(segment.slots)

    def _set_addresses(self, addresses: Addresses, slot_count: int) -> None:
        longer: Addresses = self._zeros(slot_count, np.uint32)
        longer[: len(addresses)] = addresses
        longer[len(addresses) :] = _NOWHERE
        self._addresses, self._table, self._kept_table = longer, None, None

    def _numbers(self, slots: Slots) -> npt.NDArray[np.intp]:
        """The ordinal of each slot's segment."""
        return self.table.starts.searchsorted(self._addresses.take(slots), "right") - 1

    def _is_live(self, segment: Segment) -> npt.NDArray[np.bool_]:
        return self._addresses[segment.slots] == segment.addresses

    def _live_slots(self, segment: Segment) -> Slots:
        return segment.slots[self._is_live(segment)]

    def _live_part(self, segment: Segment) -> tuple[Slots, pa.RecordBatch]:
        if not segment.dead:
            return segment.slots, segment.rows
        at = np.flatnonzero(self._is_live(segment))
        return segment.slots[at], segment.rows.take(pa.array(at))

    def _segment_bytes(self, queue: RowQueue) -> int:
        return self.queues[queue].segment_bytes(is_roomy=self.is_roomy)

    def _pop(self, segment_id: int) -> None:
        segment = self._segments.pop(segment_id)
        self._forget_tables(segment)
        queue = self.queues[segment.queue]
        queue.bytes -= segment.bytes
        del queue.ids[segment_id]

    def _forget_tables(self, *changed: Segment | None) -> None:
        self._table = None
        if any(segment is not None and segment.is_kept for segment in changed):
            self._kept_table = None

    def _merge_pairs(self, queue: RowQueue, ratio: int = 0) -> None:
        ids = self.queues[queue].ids
        while len(ids) > 1 and self._merge(*[*ids][-2:], ratio=ratio):
            pass
        # At most one older pair: as the queue grows, its large segments become small ones.
        any(self._merge(*pair) for pair in pairwise([*ids]))

    def _merge_run(self, ids: Sequence[int]) -> bool:
        """Merge the youngest neighbours of about the same size; False if there are none."""
        for end in range(len(ids), _FAN_IN - 1, -1):
            run = ids[end - _FAN_IN : end]
            sizes = [len(self._segments[each].slots) for each in run]
            if _ELDER_PARTS * sizes[0] <= sum(sizes) and self._may_merge(run):
                self._merge_all(run)
                return True
        return False

    def _merge_whole(self, ids: Sequence[int]) -> None:
        """Merge all segments of one queue, unless most rows are in one already."""
        sizes = [self._segments[each].bytes for each in ids]
        is_worth_it = sum(sizes) >= (1 + _WHOLE_SHARE) * max(sizes, default=0)
        if self.is_roomy and len(ids) > 1 and is_worth_it and sum(sizes) <= _WHOLE_BYTES:
            self._merge_all(ids)

    def _may_merge(self, ids: Sequence[int]) -> bool:
        """Whether segments of one queue are small enough to become one at any time."""
        segments = [self._segments[each] for each in ids]
        merged_bytes = sum(each.total_bytes for each in segments)
        return merged_bytes <= self._segment_bytes(segments[0].queue)

    def _merge_all(self, ids: Sequence[int]) -> None:
        """Merge neighbours of one queue."""
        segments = [self._segments[each] for each in ids]
        is_large = sum(each.total_bytes for each in segments) > _SMALL_BYTES
        is_kept = is_large or any(each.is_kept for each in segments)
        self._replace(ids[0], *segments, is_kept=is_kept)
        for each in ids[1:]:
            self._pop(each)

    def _merge(self, elder_id: int, younger_id: int, *, ratio: int = 0) -> bool:
        elder, younger = self._segments[elder_id], self._segments[younger_id]
        # Sizes fall from old to young, so a row is copied a logarithmic number of times.
        ratio = ratio or (_ROOMY_RATIO if self.is_roomy else _CROWDED_RATIO)
        is_large = ratio * len(younger.slots) >= len(elder.slots)
        if not is_large or not self._may_merge((elder_id, younger_id)):
            return False
        self._merge_all((elder_id, younger_id))
        return True

    def _compact(self, segment_id: int, segment: Segment) -> None:
        if segment.dead == len(segment.slots):
            self._pop(segment_id)
            return
        self._replace(segment_id, segment, is_kept=segment.is_kept)
        # Else segments with few survivors would add up, and every `gather` visits all segments.
        ids = list(self.queues[segment.queue].ids)
        at = ids.index(segment_id)
        for elder_id, younger_id in reversed([*pairwise(ids[max(at - 1, 0) : at + 2])]):
            self._merge(elder_id, younger_id)

    def _replace(self, segment_id: int, *old: Segment, is_kept: bool = True) -> None:
        """Store the live rows of old segments as one, with the age of the segment of this id."""
        parts = [self._live_part(each) for each in old]
        rows = concat_batches([rows for _, rows in parts])
        slots = np.concatenate([slots for slots, _ in parts])
        self._set(segment_id, rows, slots=slots, queue=old[0].queue, is_kept=is_kept)
