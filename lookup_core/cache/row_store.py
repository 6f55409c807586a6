"""Row store of a cache: rows by slot, in Arrow segments that are merged, compacted and dropped.

Knows neither keys nor lifetimes. Each queue of S3-FIFO has segments of its own.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from operator import attrgetter

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from lookup_core.compatibility import concat_batches
from lookup_core.keys.key_index import Slots, Zeros

Addresses = npt.NDArray[np.uint32]

BYTES_BY_SLOT = 4  # one address each

_ADDRESSES = 2**32 - 1
_NOWHERE = _ADDRESSES
_MAX_DEAD_SHARE = 0.5  # of a segment's rows
_MAX_DEAD_SHARE_IF_FULL = 0.1  # without room, compaction pays off earlier
# Memory of an entry besides its row, about: else segments of narrow rows would be half the cache.
_BYTES_BESIDE_ROW = 40
_SEGMENTS_PER_QUEUE = 6  # about; each further one costs every `gather` some 20 microseconds
_ROOMY_SEGMENT_BYTES = 32 * 1024 * 1024  # while nothing is evicted; bounds the time of a merge
_MAX_SEGMENT_BYTES = 256 * 1024 * 1024  # far below the limit of Arrow's 32-bit text offsets
_LEAST_PARTS = 2
_ROOMY_RATIO, _CROWDED_RATIO = 8, 2  # of neighbours that are merged, at most


class RowQueue(Enum):
    """The queues of the cache."""

    SMALL = "small"  # new rows, on probation
    MAIN = "main"  # rows that were looked up again
    NEGATIVE = "negative"  # negative entries


@dataclass(slots=True)
class SegmentQueue:
    """The segments of one queue; its owner sets `unit_bytes`, its store the rest."""

    unit_bytes: int  # to be evicted at a time
    ids: dict[int, None]  # of segments, oldest first
    bytes: int = 0  # of rows and their slots
    rows: int = 0

    def segment_bytes(self, *, is_roomy: bool) -> int:
        """The size up to which segments are merged, the overhead of their entries included."""
        total_bytes = self.bytes + _BYTES_BESIDE_ROW * self.rows
        large = max(self.unit_bytes, total_bytes // _SEGMENTS_PER_QUEUE)
        return min(max(large, _ROOMY_SEGMENT_BYTES * is_roomy), _MAX_SEGMENT_BYTES)


@dataclass(slots=True, kw_only=True)
class _Segment:
    """Rows of one queue with their slots; row i has the address `start + i`."""

    start: int
    rows: pa.RecordBatch
    slots: Slots  # [rows] the slot of each row; a row is dead when its slot has another address
    queue: RowQueue
    bytes: int
    columns: Sequence[pa.Array]  # of the rows, for single rows: Arrow copies the list on access
    dead: int = 0

    @property
    def total_bytes(self) -> int:
        """Memory of its rows and of everything besides them."""
        return self.bytes + _BYTES_BESIDE_ROW * len(self.slots)

    @property
    def addresses(self) -> Addresses:
        """The addresses of all its rows, dead ones included."""
        return np.arange(self.start, self.start + len(self.slots), dtype=np.uint32)


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


Positions = npt.NDArray[np.intp]
Tags = npt.NDArray[np.uint64]  # a number for each row of a segment


@dataclass(frozen=True, slots=True)
class Gathered:
    """Rows by segment; row i belongs to item `order[i]` of the request."""

    order: Positions
    rows: pa.RecordBatch
    tags: Tags  # of the rows, if they were requested


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

    def of(self, slots: Slots) -> Addresses:
        """The addresses of these slots; for ABSENT that of any slot."""
        return self.addresses.take(slots, mode="clip")

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
        orders: list[Positions] = []
        pieces: list[pa.RecordBatch] = []
        found_tags: list[Tags] = []
        for at, order in self._by_segment(addresses):
            if is_negative in {None, self.is_negative[at]}:
                rows = addresses.take(order) - self.starts[at]
                orders.append(order)
                pieces.append(self._selected(at, names).take(pa.array(rows)))
                found_tags.append(tags[at].take(rows) if tags else _NO_TAGS)
        if len(pieces) == 1:  # the usual case
            return Gathered(orders[0], pieces[0], found_tags[0])
        if not pieces:
            nothing = pa.RecordBatch.from_pylist([], schema=self.schema).select(names)
            return Gathered(np.arange(0), nothing, _NO_TAGS)
        found = np.concatenate(found_tags)
        return Gathered(np.concatenate(orders), concat_batches(pieces), found)

    def _by_segment(self, addresses: Addresses) -> Iterator[tuple[int, Positions]]:
        """The number of each segment that has some of the addresses, and which ones it has."""
        if not len(addresses) or not len(self.starts):
            return
        least, most = addresses.min(), addresses.max()
        first, last = (self.starts.searchsorted((least, most), "right") - 1).tolist()
        if first == last and first >= 0 and most < self.ends[first]:  # the usual case
            yield first, np.arange(len(addresses))
            return
        numbers = self.starts.searchsorted(addresses, "right") - 1
        # Between segments, and behind the last one, addresses have no row.
        is_known = (numbers >= 0) & (addresses < self.ends.take(numbers, mode="clip"))
        for number in range(max(first, 0), last + 1):
            order = np.flatnonzero(is_known & (numbers == number))
            if len(order):
                yield number, order

    def _selected(self, at: int, names: Sequence[str]) -> pa.RecordBatch:
        known = (at, tuple(names))
        if known not in self.selected:
            self.selected[known] = self.segments[at].select(names)
        return self.selected[known]


_NO_TAGS = np.zeros(0, np.uint64)


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
        self._segments: dict[int, _Segment] = {}  # {segment id: segment}, by address
        self._table: RowTable | None = None  # None: to be computed
        self.queues = {queue: SegmentQueue(size, {}) for queue, size in unit_bytes.items()}
        self.is_roomy = False  # whether no eviction is near; set by the owner
        self._addresses: Addresses = zeros(0, np.uint32)  # by slot
        self._address_count = address_count
        self._next_address = self._next_id = 0
        self._era = object()

    @property
    def row_bytes(self) -> int:
        """Memory of all rows and their slots."""
        return sum(queue.bytes for queue in self.queues.values())

    def put(self, slots: Slots, rows: pa.RecordBatch, queue: RowQueue) -> None:
        """Store one row per slot; the slots are empty, and `rows` is no slice of a larger batch.

        All rows of one queue have the same columns, a subset of the schema's.
        """
        if not len(slots):
            return
        segment_id, self._next_id = self._next_id, self._next_id + 1
        ids = self.queues[queue].ids
        ids[segment_id] = None
        self.queues[queue].rows += len(slots)
        self._set(segment_id, rows, slots=slots, queue=queue)
        while len(ids) > 1 and self._merge(*[*ids][-2:]):
            pass
        # At most one older pair: as the queue grows, its large segments become small ones.
        any(self._merge(*pair) for pair in pairwise([*ids]))

    @property
    def table(self) -> RowTable:
        """The rows, to be read until the next change of segments or slots."""
        if self._table is None:
            segments = self._segments.values()
            starts = np.array([segment.start for segment in segments], np.uint32)
            sizes = np.array([len(segment.slots) for segment in segments], np.uint32)
            self._table = RowTable(
                *(self.schema, self._addresses, starts, starts + sizes),
                segments=[segment.rows for segment in segments],
                is_negative=[segment.queue is RowQueue.NEGATIVE for segment in segments],
            )
        return self._table

    @property
    def is_used(self) -> npt.NDArray[np.bool_]:
        """Which slots have a row."""
        return self._addresses != _NOWHERE

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
        count = min(-(-segment.total_bytes // self._segment_bytes(queue)), len(segment.slots))
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
        assert ends[-1] <= self._next_address <= self._address_count
        for name, queue in self.queues.items():
            own = {key for key, segment in self._segments.items() if segment.queue is name}
            assert own == set(queue.ids)
            assert queue.bytes == sum(self._segments[key].bytes for key in own)
            assert queue.rows == sum(len(live[key]) for key in own)

    def _stored(self, slot: int) -> tuple[_Segment, int]:
        address, segments = self._addresses.item(slot), [*self._segments.values()]
        segment = segments[bisect_right(segments, address, key=attrgetter("start")) - 1]
        return segment, address - segment.start

    def _set(self, segment_id: int, rows: pa.RecordBatch, *, slots: Slots, queue: RowQueue) -> None:
        before = self._segments.pop(segment_id, None)
        if self._next_address + len(slots) > self._address_count:
            self._close_gaps()
        rows = self._keep(rows)
        segment = _Segment(
            start=self._next_address,
            rows=rows,
            slots=slots,
            queue=queue,
            bytes=stored_bytes(rows),
            columns=rows.columns,
        )
        self._next_address += len(slots)
        self._segments[segment_id] = segment
        self._table = None
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
        self._addresses, self._table = longer, None

    def _numbers(self, slots: Slots) -> npt.NDArray[np.intp]:
        """The ordinal of each slot's segment."""
        return self.table.starts.searchsorted(self._addresses.take(slots), "right") - 1

    def _is_live(self, segment: _Segment) -> npt.NDArray[np.bool_]:
        return self._addresses[segment.slots] == segment.addresses

    def _live_slots(self, segment: _Segment) -> Slots:
        return segment.slots[self._is_live(segment)]

    def _live_part(self, segment: _Segment) -> tuple[Slots, pa.RecordBatch]:
        if not segment.dead:
            return segment.slots, segment.rows
        at = np.flatnonzero(self._is_live(segment))
        return segment.slots[at], segment.rows.take(pa.array(at))

    def _segment_bytes(self, queue: RowQueue) -> int:
        return self.queues[queue].segment_bytes(is_roomy=self.is_roomy)

    def _pop(self, segment_id: int) -> None:
        segment, self._table = self._segments.pop(segment_id), None
        queue = self.queues[segment.queue]
        queue.bytes -= segment.bytes
        del queue.ids[segment_id]

    def _merge(self, elder_id: int, younger_id: int) -> bool:
        elder, younger = self._segments[elder_id], self._segments[younger_id]
        merged_bytes = elder.total_bytes + younger.total_bytes
        is_small = merged_bytes <= self._segment_bytes(elder.queue)
        # Sizes fall from old to young, so a row is copied a logarithmic number of times.
        ratio = _ROOMY_RATIO if self.is_roomy else _CROWDED_RATIO
        if not is_small or ratio * len(younger.slots) < len(elder.slots):
            return False
        self._replace(elder_id, elder, younger)
        self._pop(younger_id)
        return True

    def _compact(self, segment_id: int, segment: _Segment) -> None:
        if segment.dead == len(segment.slots):
            self._pop(segment_id)
            return
        self._replace(segment_id, segment)
        # Else segments with few survivors would add up, and every `gather` visits all segments.
        ids = list(self.queues[segment.queue].ids)
        at = ids.index(segment_id)
        for elder_id, younger_id in reversed([*pairwise(ids[max(at - 1, 0) : at + 2])]):
            self._merge(elder_id, younger_id)

    def _replace(self, segment_id: int, *old: _Segment) -> None:
        """Store the live rows of old segments as one, with the age of the segment of this id."""
        parts = [self._live_part(each) for each in old]
        rows = concat_batches([rows for _, rows in parts])
        slots = np.concatenate([slots for slots, _ in parts])
        self._set(segment_id, rows, slots=slots, queue=old[0].queue)


def stored_bytes(rows: pa.RecordBatch) -> int:
    """Memory of rows once they are stored, with their slots.

    An upper bound that holds after merging and compaction too: counts a validity bitmap for each
    column, and shared buffers once per use.
    """
    slot_bytes = rows.num_rows * np.dtype(np.int32).itemsize
    return slot_bytes + sum(_column_bytes(column) for column in rows.columns)


def _column_bytes(column: pa.Array) -> int:
    bitmap_bytes = -(-len(column) // 8)  # only bitmaps may be absent
    buffers, values_bytes = column.buffers(), 0
    if types.is_list(column.type):  # the values have a bitmap of their own length
        buffers, values_bytes = buffers[:2], _column_bytes(column.values)
    elif types.is_struct(column.type):
        fields = [column.field(at) for at in range(column.type.num_fields)]
        buffers, values_bytes = buffers[:1], sum(_column_bytes(field) for field in fields)
    return values_bytes + sum(bitmap_bytes if each is None else each.size for each in buffers)
