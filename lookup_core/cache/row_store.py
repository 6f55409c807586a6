"""Row store of a cache: rows by slot, in Arrow segments that are merged, compacted and dropped.

Knows neither keys nor lifetimes. Each queue of S3-FIFO has segments of its own.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.cache.cache_memory import CacheMemory, OwnMemory
from lookup_core.cache.cache_view import Addresses, RowTable
from lookup_core.cache.row_segments import (
    MERGE_CROWDED,
    MERGE_QUIET,
    MERGE_ROOMY,
    MERGE_RUNS,
    MergeRule,
    RowQueue,
    RowSegment,
    SegmentQueue,
    is_worth_merging,
    merge_plan,
    stored_bytes,
)
from lookup_core.compatibility import concat_batches
from lookup_core.keys.key_index import Slots

BYTES_BY_SLOT = 4  # one address each

_ADDRESSES = 2**32 - 1
_NOWHERE = _ADDRESSES
_MAX_DEAD_SHARE = 0.5
_MAX_DEAD_SHARE_IF_FULL = 0.1  # without room, compaction pays off earlier
_LEAST_PARTS = 2
_SMALL_SEGMENT_BYTES = 1024 * 1024  # a new segment, which is not worth a file of its own
_EVERY = slice(None)
_START = attrgetter("start")


class StoredRow(NamedTuple):
    """A row in all columns of its segment; valid until the store changes."""

    columns: Sequence[pa.Array]
    at: int


class RowStore:
    """Rows of one schema by queue and slot; slots are numbers of the caller, dense from 0."""

    def __init__(
        self,
        schema: pa.Schema,
        *,
        unit_bytes: Mapping[RowQueue, int],
        memory: CacheMemory | None = None,
        address_count: int = _ADDRESSES,
    ) -> None:
        """`memory` is this process's own by default."""
        self.schema = schema
        self._memory = OwnMemory() if memory is None else memory
        self._segments: list[RowSegment] = []  # by address
        self._table: RowTable | None = None  # None: to be computed
        self._settled_table: RowTable | None = None
        self.queues = {queue: SegmentQueue(size) for queue, size in unit_bytes.items()}
        self.is_roomy = False  # whether no eviction is near; set by the owner
        self._addresses: Addresses = self._memory.zeros(0, np.uint32)  # by slot
        self._address_count = address_count
        self._next_address = 0
        self._to_move: list[RowSegment] = []

    @property
    def row_bytes(self) -> int:
        """Memory of all rows and their slots."""
        return sum(queue.bytes for queue in self.queues.values())

    def add_rows(
        self, slots: Slots, rows: pa.RecordBatch, queue: RowQueue, *, settles_later: bool = False
    ) -> None:
        """Store one row per slot; the slots are empty, and `rows` is no slice of a larger batch.

        All rows of one queue have the same columns, a subset of the schema's. With `settles_later`,
        readers may see the rows after `settle` only: then many small segments cost few copies.
        """
        if not len(slots):
            return
        self.queues[queue].rows += len(slots)
        youngest = len(self.queues[queue].segments)
        self._insert(rows, slots, queue, at=youngest, is_settled=not settles_later)
        if not settles_later or not self.is_roomy:
            self._merge_pairs(queue, self._pair_rule)
            return
        while self._merge_next(queue, MERGE_RUNS):
            pass

    def settle(self, *, is_quiet: bool) -> None:
        """Let readers see all rows; if no more come for now, merge them into few segments."""
        for queue, known in self.queues.items():
            if is_quiet:
                self._merge_pairs(queue, MERGE_QUIET)
                if self.is_roomy and is_worth_merging(known.segments):
                    self._merge(known.segments)
            if new := [each for each in known.segments if not each.is_settled]:
                self._merge(new, is_settled=True)

    def begin_move(self) -> None:
        """Let `move_next` store each settled segment in the memory again."""
        self._to_move = [each for each in self._segments if each.is_settled]

    def move_next(self) -> bool:
        """Store the rows of one more segment again; false once all are stored."""
        while self._to_move:
            segment = self._to_move.pop()
            if segment in self._segments:  # else it was merged meanwhile
                segment.rows = self._memory.rows(segment.rows)
                segment.columns = segment.rows.columns
                self._forget_tables(segment)
                return True
        return False

    @property
    def table(self) -> RowTable:
        """The rows, to be read until the next change of segments or slots."""
        if self._table is None:
            self._table = self._table_of(self._segments)
        return self._table

    @property
    def settled_table(self) -> RowTable:
        """The rows that readers see."""
        if self._settled_table is None:
            self._settled_table = self._table_of(
                [each for each in self._segments if each.is_settled]
            )
        return self._settled_table

    @property
    def is_used(self) -> npt.NDArray[np.bool_]:
        """Which slots have a row."""
        return self._addresses != _NOWHERE

    def row(self, slot: int) -> StoredRow:
        """The row of one slot that has one."""
        address = self._addresses.item(slot)
        segment = self._segments[bisect_right(self._segments, address, key=_START) - 1]
        return StoredRow(segment.columns, address - segment.start)

    def remove_rows(self, slots: Slots) -> None:
        """Remove the rows of distinct slots that have one."""
        counts = np.bincount(self._numbers(slots), minlength=len(self._segments)).tolist()
        self._addresses[slots] = _NOWHERE
        self._memory.fence()  # before the slots get other keys
        for segment, count in zip(self._segments, counts, strict=True):
            segment.dead += count
            self.queues[segment.queue].rows -= count
        self.compact(_MAX_DEAD_SHARE)

    def compact(self, max_dead_share: float = _MAX_DEAD_SHARE_IF_FULL) -> None:
        """Free the memory of removed rows, in segments where their share is larger."""
        for segment in [*self._segments]:
            has_many_dead = segment.dead > max_dead_share * len(segment.slots)
            # Compaction of a former segment may have merged this one.
            if has_many_dead and segment in self._segments:
                self._compact(segment)

    def move_rows(self, slots: Slots, queue: RowQueue) -> None:
        """Make rows the youngest of a queue that has the same columns."""
        if not len(slots):
            return
        names = self._segments[self._numbers(slots[:1]).item()].rows.schema.names
        moved = self.table.gather_slots(slots, names)
        self.remove_rows(slots)
        self.add_rows(slots[moved.order], moved.rows, queue)

    def is_in(self, slots: Slots, queue: RowQueue) -> npt.NDArray[np.bool_]:
        """Which of these slots, all of which have rows, have them in one queue."""
        is_own = [segment.queue is queue for segment in self._segments]
        return np.array(is_own, np.bool_)[self._numbers(slots)]

    def split_oldest(self, queue: RowQueue) -> None:
        """Divide the oldest segment of a queue if it has grown in roomier times."""
        for segment in self.queues[queue].segments[:1]:
            live_count = len(segment.slots) - segment.dead
            count = min(-(-segment.total_bytes // self._segment_bytes(queue)), live_count)
            if count >= _LEAST_PARTS:
                slots, rows = self._live_part(segment)
                self._drop(segment)
                for at, part in enumerate(np.array_split(np.arange(len(slots)), count)):
                    self._insert(rows.take(pa.array(part)), slots[part], queue, at=at)

    def oldest_slots(self, queue: RowQueue) -> Slots:
        """The slots of a queue's oldest segment, oldest first; none if the queue is empty."""
        for segment in self.queues[queue].segments:
            return self._live_slots(segment)
        return np.zeros(0, np.int32)

    def pieces(self) -> Iterator[tuple[RowQueue, Slots, pa.RecordBatch]]:
        """The queue, slots and rows of each segment."""
        for segment in self._segments:
            yield segment.queue, *self._live_part(segment)

    def resize(self, slot_count: int) -> None:
        """Make room for slots below `slot_count`, which never decreases here."""
        self._set_addresses(self._addresses, slot_count)

    def renumber(self, kept: Slots, slot_count: int) -> None:
        """Rename slot `kept[i]`, for all slots that have rows, to slot i."""
        number_of = np.full(len(self._addresses), -1, np.int32)  # any number does for dead rows
        number_of[kept] = np.arange(len(kept))
        self._set_addresses(self._addresses[kept], slot_count)
        for segment in self._segments:
            segment.slots = number_of[segment.slots]

    def check_invariants(self) -> None:
        """For tests: every row is in exactly one segment, and the sums agree."""
        live = {segment: self._live_slots(segment) for segment in self._segments}
        found = np.sort(np.concatenate([np.zeros(0, np.int32), *live.values()]))
        assert found.tolist() == np.flatnonzero(self.is_used).tolist()
        end = 0
        for segment, slots in live.items():
            assert end <= segment.start
            end = segment.start + len(segment.slots)
            assert len(slots) + segment.dead == len(segment.slots) == segment.rows.num_rows
            assert len(slots)  # else eviction would find nothing to remove, for ever
        assert end <= self._next_address <= self._address_count
        for name, queue in self.queues.items():
            assert {*queue.segments} == {each for each in self._segments if each.queue is name}
            assert queue.bytes == sum(each.bytes for each in queue.segments)
            assert queue.rows == sum(len(live[each]) for each in queue.segments)

    @property
    def _pair_rule(self) -> MergeRule:
        return MERGE_ROOMY if self.is_roomy else MERGE_CROWDED

    def _table_of(self, segments: Sequence[RowSegment]) -> RowTable:
        starts = np.array([segment.start for segment in segments], np.uint32)
        sizes = np.array([len(segment.slots) for segment in segments], np.uint32)
        return RowTable(
            schema=self.schema,
            addresses=self._addresses,
            starts=starts,
            ends=starts + sizes,
            segments=[segment.rows for segment in segments],
            is_negative=[segment.queue is RowQueue.NEGATIVE for segment in segments],
        )

    def _insert(
        self,
        rows: pa.RecordBatch,
        slots: Slots,
        queue: RowQueue,
        *,
        at: int,
        is_settled: bool = True,
    ) -> None:
        """Store rows as segment number `at` of a queue, from the oldest."""
        if self._next_address + len(slots) > self._address_count:
            self._close_gaps()
        rows = self._memory.rows(rows) if is_settled else rows
        segment = RowSegment(
            start=self._next_address,
            rows=rows,
            slots=slots,
            queue=queue,
            bytes=stored_bytes(rows),
            columns=rows.columns,
            is_settled=is_settled,
        )
        self._next_address += len(slots)
        self._segments.append(segment)
        self.queues[queue].segments.insert(at, segment)
        self.queues[queue].bytes += segment.bytes
        self._forget_tables(segment)
        self._memory.fence()  # behind the hashes and states of the slots
        self._addresses[slots] = segment.addresses

    def _drop(self, segment: RowSegment) -> None:
        self._segments.remove(segment)
        queue = self.queues[segment.queue]
        queue.segments.remove(segment)
        queue.bytes -= segment.bytes
        self._forget_tables(segment)

    def _forget_tables(self, changed: RowSegment) -> None:
        self._table = None
        if changed.is_settled:
            self._settled_table = None

    def _close_gaps(self) -> None:
        # In order, so that no new address is still in use by a later segment.
        self._next_address = 0
        self._set_addresses(self._addresses, len(self._addresses))  # readers have the former ones
        for segment in self._segments:
            is_live = self._is_live(segment)
            segment.start = self._next_address
            self._addresses[segment.slots[is_live]] = segment.addresses[is_live]
            self._next_address += len(segment.slots)

    def _set_addresses(self, addresses: Addresses, slot_count: int) -> None:
        longer: Addresses = self._memory.zeros(slot_count, np.uint32)
        longer[: len(addresses)] = addresses
        longer[len(addresses) :] = _NOWHERE
        self._addresses, self._table, self._settled_table = longer, None, None

    def _numbers(self, slots: Slots) -> npt.NDArray[np.intp]:
        """The ordinal of each slot's segment."""
        return self.table.starts.searchsorted(self._addresses.take(slots), "right") - 1

    def _is_live(self, segment: RowSegment) -> npt.NDArray[np.bool_]:
        return self._addresses[segment.slots] == segment.addresses

    def _live_slots(self, segment: RowSegment) -> Slots:
        return segment.slots[self._is_live(segment)]

    def _live_part(self, segment: RowSegment) -> tuple[Slots, pa.RecordBatch]:
        if not segment.dead:
            return segment.slots, segment.rows
        at = np.flatnonzero(self._is_live(segment))
        return segment.slots[at], segment.rows.take(pa.array(at))

    def _segment_bytes(self, queue: RowQueue) -> int:
        return self.queues[queue].segment_bytes(is_roomy=self.is_roomy)

    def _merge_pairs(self, queue: RowQueue, rule: MergeRule) -> None:
        while self._merge_next(queue, rule, slice(-2, None)):
            pass
        # At most one older pair: as the queue grows, its large segments become small ones.
        self._merge_next(queue, rule)

    def _merge_next(self, queue: RowQueue, rule: MergeRule, among: slice = _EVERY) -> bool:
        """Merge some neighbours among these segments of a queue; False if there are none."""
        segments = self.queues[queue].segments[among]
        run = merge_plan(segments, rule, max_bytes=self._segment_bytes(queue))
        if run:
            self._merge(run)
        return bool(run)

    def _compact(self, segment: RowSegment) -> None:
        if segment.dead == len(segment.slots):
            self._drop(segment)
            return
        at = self.queues[segment.queue].segments.index(segment)
        self._merge([segment])
        # Else segments with few survivors would add up, and every `gather` visits all segments.
        for pair in (slice(at, at + 2), slice(max(at - 1, 0), at + 1)):
            self._merge_next(segment.queue, self._pair_rule, pair)

    def _merge(self, run: Sequence[RowSegment], *, is_settled: bool = False) -> None:
        """Store the live rows of neighbours of one queue as one segment.

        Readers see it if they saw one of them, or if it is large.
        """
        is_large = sum(each.total_bytes for each in run) > _SMALL_SEGMENT_BYTES
        is_settled = is_settled or is_large or any(each.is_settled for each in run)
        parts = [self._live_part(each) for each in run]
        queue = run[0].queue
        at = self.queues[queue].segments.index(run[0])
        for each in [*run]:
            self._drop(each)
        rows = concat_batches([rows for _, rows in parts])
        slots = np.concatenate([slots for slots, _ in parts])
        self._insert(rows, slots, queue, at=at, is_settled=is_settled)
