"""Row segments: rows by slot, found again whatever was merged, compacted, moved or dropped."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.cache.cache_memory import OwnMemory
from lookup_core.cache.cache_view import Gathered
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
from lookup_core.cache.row_store import RowStore
from lookup_core.keys.key_index import Slots

SMALL, MAIN = RowQueue.SMALL, RowQueue.MAIN
SCHEMA = pa.schema({"number": pa.int64(), "text": pa.utf8(), "truth": pa.bool_()})
LARGE = 10**9
BYTES_PER_ENTRY = 40  # that an entry counts for its segment, apart from its row


def slots_of(*values: int) -> Slots:
    """Slots as the store takes them."""
    return np.array(values, np.int32)


def rows_of(*numbers: int | None) -> pa.RecordBatch:
    """Rows that differ by number; None makes a row of nulls."""
    rows = [
        {} if number is None else {"number": number, "text": f"t{number}", "truth": number % 2 == 0}
        for number in numbers
    ]
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


def put(store: RowStore, numbers: Sequence[int], queue: RowQueue = MAIN) -> None:
    """Store these numbers in the slots of the same numbers."""
    store.add_rows(slots_of(*numbers), rows_of(*numbers), queue)
    store.check_invariants()


def texts_at(store: RowStore, *slots: int) -> list[object]:
    """The texts of the rows in these slots, in their order."""
    store.check_invariants()
    gathered: Gathered = store.table.gather_slots(slots_of(*slots), ["text"])
    assert sorted(gathered.order.tolist()) == list(range(len(slots)))
    return [gathered.rows["text"][at].as_py() for at in np.argsort(gathered.order)]


def new_store(
    *, slots: int = 100, max_segment_bytes: int = LARGE, address_count: int = 2**32 - 1
) -> RowStore:
    """A store with room for slots."""
    sizes = dict.fromkeys(RowQueue, max_segment_bytes)
    store = RowStore(SCHEMA, unit_bytes=sizes, address_count=address_count)
    store.resize(slots)
    return store


def test_long_queue_has_few_segments() -> None:
    """In a queue much larger than its bound segments are merged again, so that they stay few."""
    store = new_store(slots=600, max_segment_bytes=1)
    for slot in range(600):
        store.add_rows(slots_of(slot), rows_of(slot), MAIN)
    assert texts_at(store, 5, 595) == ["t5", "t595"]

    segments = 0
    while len(oldest := store.oldest_slots(MAIN)):
        store.remove_rows(oldest)
        segments += 1

    assert segments < 60


@pytest.mark.parametrize(
    ("held_bytes", "rows", "is_roomy", "expected"),
    [
        (500, 10, False, 1_000),
        (8_000, 100, False, 2_000),
        (8_000, 100, True, 2**25),
        (2**40, 2**30, False, 2**28),
        (2**40, 2**30, True, 2**28),
    ],
)
def test_segments_grow_with_their_queue(
    *, held_bytes: int, rows: int, is_roomy: bool, expected: int
) -> None:
    """Each is a sixth of its queue, within bounds: text offsets of Arrow have 32 bits."""
    queue = SegmentQueue(1_000, bytes=held_bytes, rows=rows)

    assert queue.segment_bytes(is_roomy=is_roomy) == expected


def segments_of(*sizes: int, bytes_each: int = 0) -> list[RowSegment]:
    """Segments with these numbers of rows, the oldest first."""
    return [
        RowSegment(
            start=0,
            rows=rows_of(),
            slots=slots_of(*range(size)),
            queue=MAIN,
            bytes=bytes_each,
            columns=[],
            is_settled=False,
        )
        for size in sizes
    ]


@pytest.mark.parametrize(
    ("rule", "sizes", "merged"),
    [
        (MERGE_RUNS, [1, 1, 1], []),
        (MERGE_RUNS, [1, 1, 1, 1], [1, 1, 1, 1]),
        (MERGE_RUNS, [4, 4, 4, 4, 1, 1, 1], [4, 4, 4, 1]),
        (MERGE_RUNS, [5, 4, 4, 2], [5, 4, 4, 2]),
        (MERGE_RUNS, [6, 4, 4, 3], []),
        (MERGE_CROWDED, [3, 1], []),
        (MERGE_CROWDED, [2, 1], [2, 1]),
        (MERGE_CROWDED, [2, 2, 9, 1], [2, 9]),
        (MERGE_ROOMY, [9, 1], []),
        (MERGE_ROOMY, [8, 1], [8, 1]),
        (MERGE_QUIET, [65, 1], []),
        (MERGE_QUIET, [64, 1], [64, 1]),
        (MERGE_QUIET, [1], []),
    ],
)
def test_youngest_even_neighbours_merge(
    rule: MergeRule, sizes: list[int], merged: list[int]
) -> None:
    """The youngest neighbours become one segment, unless the eldest is too large for its rule."""
    plan = merge_plan(segments_of(*sizes), rule, max_bytes=LARGE)

    assert [len(each.slots) for each in plan] == merged


@pytest.mark.parametrize(
    ("mebibytes", "expected"),
    [
        ([20, 20, 20], True),
        ([20, 20, 30], False),  # a copy would take too long
        ([40, 5], True),
        ([40, 4], False),  # the large one would be copied for each few rows
        ([40], False),
        ([], False),
    ],
)
def test_quiet_queue_becomes_one_segment(mebibytes: list[int], *, expected: bool) -> None:
    """When no rows come, up to 64 MiB become one segment, if enough of the rows are new."""
    segments = [each for size in mebibytes for each in segments_of(1, bytes_each=size * 2**20)]

    assert is_worth_merging(segments) is expected


def put_new(store: RowStore, *sizes: int) -> list[int]:
    """Store segments of new rows; returns the sizes of all segments."""
    first = int(sum(len(each) for each in store.table.segments))
    for size in sizes:
        slots = slots_of(*range(first, first + size))
        store.add_rows(slots, rows_of(*slots.tolist()), MAIN, settles_later=True)
        store.check_invariants()
        first += size
    return [each.num_rows for each in store.table.segments]


def test_room_selects_the_rule() -> None:
    """New segments merge in runs of four; while evictions are near, few segments matter more."""
    crowded, roomy = new_store(), new_store()
    roomy.is_roomy = True

    assert put_new(crowded, 2, 1, 1) == [3, 1]
    assert put_new(crowded, 1) == [5]
    assert put_new(roomy, 1, 1, 1) == [1, 1, 1]
    assert put_new(roomy, *[1] * 10) == [13]
    assert texts_at(roomy, 0, 7, 12) == ["t0", "t7", "t12"]


class CountedMemory(OwnMemory):
    """Memory that counts the rows of each batch."""

    def __init__(self) -> None:
        self.row_counts: list[int] = []

    def rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """See `CacheMemory`."""
        self.row_counts.append(rows.num_rows)
        return rows


def test_readers_see_new_rows_once_settled() -> None:
    """New rows are stored for readers when their segments are large, and when they settle."""
    memory = CountedMemory()
    kept = memory.row_counts
    store = RowStore(SCHEMA, unit_bytes=dict.fromkeys(RowQueue, LARGE), memory=memory)
    store.is_roomy = True
    store.resize(100_000)
    assert put_new(store, 2, 1) == [2, 1]
    assert (kept, [*store.settled_table.segments]) == ([], [])

    store.settle(is_quiet=False)
    assert (kept, store.settled_table.segments[0].num_rows) == ([3], 3)
    store.settle(is_quiet=False)
    assert kept == [3]
    put_new(store, *[10_000] * 4)
    assert kept == [3, 30_003]  # 10,000 rows are still new
    store.settle(is_quiet=True)

    assert kept == [3, 30_003, 40_003]
    assert texts_at(store, 0, 30_003, 40_002) == ["t0", "t30003", "t40002"]


def test_survivors_do_not_scatter() -> None:
    """A compacted segment is merged with its neighbours, on both sides."""
    limit = stored_bytes(rows_of(*range(10, 23))) + 13 * BYTES_PER_ENTRY
    store = new_store(max_segment_bytes=limit)
    for first, last in ((0, 4), (10, 20), (30, 34)):
        put(store, range(first, last))
    assert store.oldest_slots(MAIN).tolist() == [0, 1, 2, 3]

    store.remove_rows(slots_of(*range(10, 18)))

    survivors = [0, 1, 2, 3, 18, 19, 30, 31, 32, 33]
    assert store.oldest_slots(MAIN).tolist() == survivors
    assert texts_at(store, *survivors) == [f"t{slot}" for slot in survivors]


@pytest.mark.parametrize(("removed", "is_compacted"), [(50, False), (51, True), (100, True)])
def test_dead_rows_are_given_back(removed: int, is_compacted: bool) -> None:  # noqa: FBT001
    """A segment is compacted as soon as more than half of its rows are dead."""
    store = new_store()
    put(store, range(100))
    full = store.row_bytes

    store.remove_rows(slots_of(*range(removed)))

    left = range(removed, 100)
    assert store.row_bytes == full or is_compacted
    assert store.row_bytes < 0.52 * full or not is_compacted
    assert texts_at(store, *left) == [f"t{slot}" for slot in left]


@pytest.mark.parametrize("nulls", [(True, False), (False, True), (False, False), (True, True)])
def test_merging_takes_no_more_memory(nulls: tuple[bool, bool]) -> None:
    """The bytes of rows are known before they are stored, even if merging adds bitmaps."""
    elder, younger = (rows_of(*[None if null else 7] * 50) for null in nulls)
    store = new_store()
    store.add_rows(slots_of(*range(50)), elder, MAIN)
    bound = store.row_bytes + stored_bytes(younger)

    store.add_rows(slots_of(*range(50, 100)), younger, MAIN)

    held = store.table.gather_slots(slots_of(*range(100)), SCHEMA.names).rows
    assert len(store.oldest_slots(MAIN)) == 100  # they were merged
    assert held.get_total_buffer_size() + 100 * 4 <= store.row_bytes <= bound


def test_addresses_are_given_again() -> None:
    """When all addresses have been given, those of removed rows are given again."""
    store = new_store(slots=8, address_count=24)
    put(store, [6, 7], SMALL)

    for turn in range(50):
        store.add_rows(slots_of(*range(6)), rows_of(*range(turn, turn + 6)), MAIN)
        store.remove_rows(slots_of(0, 2))
        expected = [*(f"t{turn + slot}" for slot in (5, 1, 3, 4)), "t7", "t6"]
        assert texts_at(store, 5, 1, 3, 4, 7, 6) == expected
        store.remove_rows(slots_of(1, 3, 4, 5))


def test_a_split_makes_no_empty_segment() -> None:
    """Removed rows do not count: eviction would find nothing in an empty segment, for ever."""
    store = new_store()
    put(store, range(8))
    store.remove_rows(slots_of(*range(4)))  # no more than compaction leaves
    store.queues[MAIN].unit_bytes = 1

    store.split_oldest(MAIN)

    assert texts_at(store, 4, 5, 6, 7) == ["t4", "t5", "t6", "t7"]
    assert [len(slots) for _, slots, _ in store.pieces()] == [1] * 4
