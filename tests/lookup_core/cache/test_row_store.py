"""Rows by slot in segments: found again whatever was merged, compacted or dropped since."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lookup_core.cache.row_store import Gathered, Place, RowStore
from lookup_core.cache.segments import RowQueue, stored_bytes
from lookup_core.keys.key_index import Slots

SMALL, MAIN = RowQueue.SMALL, RowQueue.MAIN
SCHEMA = pa.schema({"number": pa.int64(), "text": pa.utf8(), "truth": pa.bool_()})
LARGE = 10**9
BESIDE = 40  # bytes that an entry counts with beside its row


def slots_of(*values: int) -> Slots:
    """Slots as the store takes them."""
    return np.array(values, np.int32)


def rows_of(*numbers: int | None) -> pa.RecordBatch:
    """Rows that can be told apart; None makes a row of nulls."""
    texts = [None if number is None else f"t{number}" for number in numbers]
    truths = [None if number is None else number % 2 == 0 for number in numbers]
    columns = [pa.array(numbers), pa.array(texts), pa.array(truths)]
    typed = [column.cast(kind) for column, kind in zip(columns, SCHEMA.types, strict=True)]
    return pa.record_batch(typed, schema=SCHEMA)


def in_order(gathered: Gathered) -> list[object]:
    """The gathered rows in the order asked, as texts."""
    assert sorted(gathered.order.tolist()) == list(range(gathered.rows.num_rows))
    texts = gathered.rows.column("text").to_pylist()
    return [text for _, text in sorted(zip(gathered.order.tolist(), texts, strict=True))]


def new_store(
    *, slots: int = 100, max_segment_bytes: int = LARGE, address_count: int = 2**32 - 1
) -> RowStore:
    """A store with room for slots."""
    sizes = dict.fromkeys(RowQueue, max_segment_bytes)
    store = RowStore(SCHEMA, max_segment_bytes=sizes, address_count=address_count)
    store.resize(slots)
    return store


@pytest.mark.parametrize("max_segment_bytes", [1, LARGE])
def test_rows_are_gathered_by_slot(max_segment_bytes: int) -> None:
    """Rows come for any slots in any order, from one segment or several, duplicates included."""
    store = new_store(max_segment_bytes=max_segment_bytes)
    store.put(slots_of(3, 1), rows_of(30, 10), MAIN)
    store.put(slots_of(7), rows_of(70), MAIN)

    gathered = store.gather(slots_of(7, 1, 7, 3), ["text"])

    assert in_order(gathered) == ["t70", "t10", "t70", "t30"]
    assert gathered.rows.schema.names == ["text"]
    store.check_invariants()


@pytest.mark.parametrize("max_segment_bytes", [1, LARGE])
def test_columns_come_as_asked(max_segment_bytes: int) -> None:
    """Columns come in the order asked; without any, the rows are still counted."""
    store = new_store(max_segment_bytes=max_segment_bytes)
    store.put(slots_of(0), rows_of(10), MAIN)
    store.put(slots_of(1), rows_of(None), MAIN)

    assert store.gather(slots_of(0, 1), ["truth", "number"]).rows.to_pydict() == {
        "truth": [True, None],
        "number": [10, None],
    }
    assert store.gather(slots_of(0, 1, 1), []).rows.num_rows == 3


def test_one_row_comes_as_asked() -> None:
    """A row that is asked for alone is the same, from any segment."""
    store = new_store(max_segment_bytes=1)
    for slot in (3, 7, 5):
        store.put(slots_of(slot, slot + 20), rows_of(slot, None), MAIN)

    rows = [store.gather(slots_of(slot), ["text", "number"]).rows.to_pylist() for slot in (7, 25)]

    assert rows == [[{"text": "t7", "number": 7}], [{"text": None, "number": None}]]
    assert in_order(store.gather(slots_of(5), ["text"])) == ["t5"]


def test_no_slots_give_no_rows() -> None:
    """Nothing may be put, gathered and removed, also where nothing is stored."""
    store = new_store()
    empty = slots_of()

    store.put(empty, rows_of(), MAIN)
    store.remove(empty)

    assert store.gather(empty, ["text", "number"]).rows.to_pydict() == {"text": [], "number": []}
    assert (store.oldest_slots(MAIN).tolist(), store.row_bytes) == ([], 0)
    store.check_invariants()


def test_removed_slot_takes_another_row() -> None:
    """A slot that is used again has the new row only."""
    store = new_store()
    store.put(slots_of(1, 2, 3), rows_of(10, 20, 30), MAIN)

    store.remove(slots_of(2))
    store.put(slots_of(2), rows_of(21), MAIN)

    assert in_order(store.gather(slots_of(1, 2, 3), ["text"])) == ["t10", "t21", "t30"]
    store.check_invariants()


def test_oldest_rows_come_first() -> None:
    """The oldest segment holds what was put first; when it goes, the next one is the oldest."""
    store = new_store(max_segment_bytes=1)
    for slot in (5, 2, 9):
        store.put(slots_of(slot), rows_of(slot), MAIN)

    store.remove(slots_of(5))

    assert store.oldest_slots(MAIN).tolist() == [2]


def test_small_segments_are_merged() -> None:
    """Rows that come one by one are not kept one by one."""
    store = new_store(slots=256)

    for slot in range(256):
        store.put(slots_of(slot), rows_of(slot), MAIN)

    assert len(store.oldest_slots(MAIN)) > 128
    assert store.row_bytes < 256 * 37
    store.check_invariants()


def test_large_segments_are_not_merged() -> None:
    """A segment never grows beyond the size at which the oldest rows go."""
    limit = stored_bytes(rows_of(10, 11, 12, 13)) + 4 * BESIDE
    store = new_store(max_segment_bytes=limit)

    for slot in range(20):
        store.put(slots_of(slot), rows_of(10), MAIN)

    oldest = store.oldest_slots(MAIN)
    assert 1 < len(oldest) <= 4
    assert stored_bytes(store.gather(oldest, SCHEMA.names).rows) <= limit


def test_segments_grow_with_their_queue() -> None:
    """What was a large segment of a small queue is merged when the queue has become large."""
    store = new_store(slots=600, max_segment_bytes=1)

    for start in range(0, 600, 10):
        numbers = range(start, start + 10)
        store.put(slots_of(*numbers), rows_of(*numbers), MAIN)

    assert len(store.oldest_slots(MAIN)) >= 40
    assert in_order(store.gather(slots_of(5, 595), ["text"])) == ["t5", "t595"]
    store.check_invariants()


def test_survivors_do_not_scatter() -> None:
    """What few rows outlive is merged with its neighbours, so that gathering stays cheap."""
    limit = stored_bytes(rows_of(*range(10, 23))) + 13 * BESIDE
    store = new_store(max_segment_bytes=limit)
    for first, last in ((0, 4), (10, 20), (30, 34)):
        store.put(slots_of(*range(first, last)), rows_of(*range(first, last)), MAIN)
    assert store.oldest_slots(MAIN).tolist() == [0, 1, 2, 3]

    store.remove(slots_of(*range(10, 18)))

    survivors = [0, 1, 2, 3, 18, 19, 30, 31, 32, 33]
    assert store.oldest_slots(MAIN).tolist() == survivors
    found = in_order(store.gather(slots_of(*survivors), ["text"]))
    assert found == [f"t{slot}" for slot in survivors]
    store.check_invariants()


def test_large_elder_is_not_copied() -> None:
    """A segment waits for one half its size: else each small one would copy all rows again."""
    store = new_store()
    store.put(slots_of(*range(10)), rows_of(*range(10)), MAIN)

    store.put(slots_of(10, 11, 12, 13), rows_of(10, 11, 12, 13), MAIN)
    assert len(store.oldest_slots(MAIN)) == 10

    store.put(slots_of(14, 15), rows_of(14, 15), MAIN)
    assert len(store.oldest_slots(MAIN)) == 16


def test_neighbours_can_shrink_together() -> None:
    """Rows of several segments go at once, also where one is merged into the other on the way."""
    store = new_store()
    store.put(slots_of(*range(10)), rows_of(*range(10)), MAIN)
    store.put(slots_of(10, 11, 12, 13), rows_of(10, 11, 12, 13), MAIN)

    store.remove(slots_of(*range(8), 10, 11, 12))

    assert in_order(store.gather(store.oldest_slots(MAIN), ["text"])) == ["t8", "t9", "t13"]
    store.check_invariants()


def test_dead_rows_are_given_back() -> None:
    """Where more than half is dead, only what lives keeps memory."""
    store = new_store()
    store.put(slots_of(*range(100)), rows_of(*range(100)), MAIN)
    full = store.row_bytes

    store.remove(slots_of(*range(60)))

    assert store.row_bytes < full / 2
    assert in_order(store.gather(slots_of(60, 99), ["text"])) == ["t60", "t99"]
    store.remove(slots_of(*range(60, 100)))
    assert store.row_bytes == 0


@pytest.mark.parametrize("nulls", [(True, False), (False, True), (False, False), (True, True)])
def test_merging_takes_no_more_memory(nulls: tuple[bool, bool]) -> None:
    """What rows will take is known before they are stored, also if merging adds their bitmaps."""
    elder, younger = (rows_of(*[None if null else 7] * 50) for null in nulls)
    store = new_store()
    store.put(slots_of(*range(50)), elder, MAIN)
    bound = store.row_bytes + stored_bytes(younger)

    store.put(slots_of(*range(50, 100)), younger, MAIN)

    held = store.gather(slots_of(*range(100)), SCHEMA.names).rows
    assert len(store.oldest_slots(MAIN)) == 100  # they were merged
    assert held.get_total_buffer_size() + 100 * 4 <= store.row_bytes <= bound


def test_queues_have_their_own_age() -> None:
    """Each queue has its oldest rows, and counts its own; gathering knows no queues."""
    store = new_store()
    store.put(slots_of(1, 2), rows_of(10, 20), SMALL)
    store.put(slots_of(3), rows_of(30), MAIN)

    assert store.oldest_slots(SMALL).tolist() == [1, 2]
    assert store.oldest_slots(MAIN).tolist() == [3]
    assert [store.queue_rows(queue) for queue in RowQueue] == [2, 1, 0]
    assert store.queue_bytes(SMALL) == stored_bytes(rows_of(10, 20))
    assert store.is_in(slots_of(3, 1, 2), SMALL).tolist() == [False, True, True]
    assert in_order(store.gather(slots_of(3, 1), ["text"])) == ["t30", "t10"]


def test_moved_rows_are_the_youngest() -> None:
    """What is moved stands behind all others of its new queue, with its slot and row."""
    store = new_store(max_segment_bytes=1)
    store.put(slots_of(1), rows_of(10), MAIN)
    store.put(slots_of(2, 3), rows_of(20, 30), SMALL)

    store.move(slots_of(3), MAIN)
    store.move(slots_of(1), MAIN)
    store.move(slots_of(), MAIN)

    assert store.oldest_slots(MAIN).tolist() == [3]
    assert [store.queue_rows(queue) for queue in RowQueue] == [1, 2, 0]
    assert in_order(store.gather(slots_of(1, 2, 3), ["text"])) == ["t10", "t20", "t30"]
    store.check_invariants()


def test_moved_row_leaves_the_others() -> None:
    """A row that moves alone takes its own memory with it, and no more."""
    store = new_store()
    store.put(slots_of(*range(100)), rows_of(*range(100)), SMALL)

    store.move(slots_of(50), MAIN)
    store.remove(store.oldest_slots(SMALL))

    held = store.gather(slots_of(50, 50), SCHEMA.names).rows
    assert store.row_bytes <= stored_bytes(held)


def test_addresses_never_end() -> None:
    """When all addresses have been given, those of rows that went are given again."""
    store = new_store(slots=8, address_count=24)
    store.put(slots_of(6, 7), rows_of(60, 70), SMALL)

    for turn in range(100):
        store.put(slots_of(*range(6)), rows_of(*range(turn, turn + 6)), MAIN)
        store.remove(slots_of(0, 2))
        store.check_invariants()
        found = in_order(store.gather(slots_of(5, 1, 3, 4, 7, 6), ["text"]))
        assert found == [*(f"t{turn + slot}" for slot in (5, 1, 3, 4)), "t70", "t60"]
        store.remove(slots_of(1, 3, 4, 5))


def test_places_never_lead_to_others() -> None:
    """When an address is given again, or a slot has another number, no kept place holds."""
    store = new_store(slots=8, address_count=4)
    store.put(slots_of(6, 7), rows_of(60, 70), SMALL)
    places = [store.place(6), store.place(7)]

    before = [store.is_at(each) for each in places]
    store.remove(slots_of(6))
    removed = [store.is_at(each) for each in places]
    store.put(slots_of(1, 2, 3), rows_of(10, 20, 30), MAIN)
    later = store.place(7)
    store.renumber(slots_of(1, 2, 3, 7), 4)

    assert (before, removed) == ([True, True], [False, True])
    assert [store.is_at(each) for each in (*places, later)] == [False] * 3


def test_queues_may_have_other_columns() -> None:
    """Rows of one queue may have some of the columns only, or none; merging keeps their number."""
    store = new_store()
    for slot in (1, 2):
        store.put(slots_of(slot), rows_of(slot).select([]), RowQueue.ABSENT)

    assert store.oldest_slots(RowQueue.ABSENT).tolist() == [1, 2]
    assert store.gather(slots_of(2, 1), []).rows.num_rows == 2


def test_renumbered_rows_are_the_same() -> None:
    """Slots get other numbers; dead rows stay dead, whoever has their numbers."""
    store = new_store(slots=20)
    store.put(slots_of(*range(10, 20)), rows_of(*range(10, 20)), MAIN)
    store.remove(slots_of(10, 11, 12))
    store.put(slots_of(11), rows_of(99), MAIN)

    store.renumber(slots_of(*range(13, 20), 11), 8)

    expected = [*(f"t{number}" for number in range(13, 20)), "t99"]
    assert in_order(store.gather(slots_of(*range(8)), ["text"])) == expected
    store.check_invariants()


def test_segments_can_be_made_smaller() -> None:
    """With another bound, what comes from now on is merged less."""
    store = new_store()
    store.set_max_segment_bytes(dict.fromkeys(RowQueue, 1))

    store.put(slots_of(1), rows_of(10), MAIN)
    store.put(slots_of(2), rows_of(20), MAIN)

    assert store.oldest_slots(MAIN).tolist() == [1]


def test_long_queue_has_few_segments() -> None:
    """A queue much larger than its segments should be lets them grow, for gathering's sake."""
    store = new_store(slots=1_000, max_segment_bytes=1)

    for slot in range(1_000):
        store.put(slots_of(slot), rows_of(slot), MAIN)

    segments = 0
    while len(oldest := store.oldest_slots(MAIN)):
        store.remove(oldest)
        segments += 1
    assert segments < 100


class RowStoreMachine(RuleBasedStateMachine):
    """A store against {slot: (when it was put, row)}."""

    def __init__(self) -> None:
        super().__init__()
        # Twice what can be stored by all steps together, half of it dead.
        self.store = RowStore(
            SCHEMA, max_segment_bytes=dict.fromkeys(RowQueue, 600), address_count=2_000
        )
        self.slot_count = 0
        self.held: dict[int, tuple[int, int | None]] = {}
        self.queues: dict[int, RowQueue] = {}  # {slot: where it stands}
        self.puts = 0
        self.bound = 0  # of the bytes: all rows that were put
        self.places: list[tuple[Place, int]] = []  # kept, each with the put of its row
        self.grow(40)

    @rule(more=st.integers(0, 40))
    def grow(self, more: int) -> None:
        """Make room."""
        self.slot_count += more
        self.store.resize(self.slot_count)

    @rule(
        data=st.data(),
        numbers=st.lists(st.none() | st.integers(0, 99), max_size=20),
        queue=st.sampled_from(RowQueue),
    )
    def put(self, data: st.DataObject, numbers: list[int | None], queue: RowQueue) -> None:
        """Put rows into slots that have none."""
        free = sorted(set(range(self.slot_count)) - set(self.held))
        slots = data.draw(st.permutations(free))[: len(numbers)]
        rows = rows_of(*numbers[: len(slots)])
        self.store.put(slots_of(*slots), rows, queue)
        self.bound += stored_bytes(rows)
        self.queues |= dict.fromkeys(slots, queue)
        self.puts += 1
        self.held |= {
            slot: (self.puts, number) for slot, number in zip(slots, numbers, strict=False)
        }

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        """Remove some rows."""
        self._remove(data.draw(st.sets(st.sampled_from(sorted(self.held)))) if self.held else set())

    @rule(queue=st.sampled_from(RowQueue))
    def remove_oldest(self, queue: RowQueue) -> None:
        """Remove the oldest segment of a queue."""
        self._remove(set(self.store.oldest_slots(queue).tolist()))

    @rule(data=st.data(), queue=st.sampled_from(RowQueue))
    def move(self, data: st.DataObject, queue: RowQueue) -> None:
        """Move some rows to the end of a queue."""
        slots = data.draw(st.sets(st.sampled_from(sorted(self.held)))) if self.held else set()
        held = self.store.gather(slots_of(*slots), SCHEMA.names).rows
        self.store.move(slots_of(*slots), queue)
        self.bound += stored_bytes(held)
        self.puts += 1
        self.held |= {slot: (self.puts, self.held[slot][1]) for slot in slots}
        self.queues |= dict.fromkeys(slots, queue)

    @rule(spare=st.integers(0, 20))
    def renumber(self, spare: int) -> None:
        """Number the used slots from 0."""
        kept = sorted(self.held)
        self.slot_count = len(kept) + spare
        self.store.renumber(slots_of(*kept), self.slot_count)
        self.held = {new: self.held[old] for new, old in enumerate(kept)}
        self.queues = {new: self.queues[old] for new, old in enumerate(kept)}

    @rule(data=st.data())
    def gather(self, data: st.DataObject) -> None:
        """Gather some rows, duplicates included."""
        slots = data.draw(st.lists(st.sampled_from(sorted(self.held)))) if self.held else []
        found = in_order(self.store.gather(slots_of(*slots), ["number", "text"]))
        numbers = [self.held[slot][1] for slot in slots]
        assert found == [None if number is None else f"t{number}" for number in numbers]

    @rule(data=st.data())
    def keep_a_place(self, data: st.DataObject) -> None:
        """Note where a row is; it is found there at once."""
        if self.held:
            slot = data.draw(st.sampled_from(sorted(self.held)))
            self.places.append((self.store.place(slot), self.held[slot][0]))
            assert self.store.is_at(self.places[-1][0])

    @invariant()
    def leads_back_to_the_same(self) -> None:
        """A place that still holds is its row's, which no later put or removal has touched."""
        for place, put in self.places:
            if self.store.is_at(place):
                assert self.held[place.slot][0] == put

    @invariant()
    def holds_the_same(self) -> None:
        """All rows are there, the oldest ones in the oldest segment, within the bytes foretold."""
        self.store.check_invariants()
        for queue in RowQueue:
            oldest = set(self.store.oldest_slots(queue).tolist())
            ages = {slot: put for slot, (put, _) in self.held.items() if self.queues[slot] is queue}
            youngest = max((ages[slot] for slot in oldest), default=0)
            assert bool(oldest) == bool(ages)
            assert all(put >= youngest for slot, put in ages.items() if slot not in oldest)
        assert self.store.row_bytes <= self.bound

    def _remove(self, slots: set[int]) -> None:
        self.store.remove(slots_of(*slots))
        for slot in slots:
            del self.held[slot], self.queues[slot]


TestRowStoreMachine = RowStoreMachine.TestCase
TestRowStoreMachine.settings = settings(max_examples=50, stateful_step_count=25)


def test_merged_lists_take_what_was_foretold() -> None:
    """Lists without NULLs get a bitmap for all of their values when merged with lists that do."""
    kind = pa.list_(pa.int8())
    whole = pa.record_batch([pa.array([[1] * 800, [2] * 800], kind)], ["values"])
    partial = pa.record_batch([pa.array([[None], None], kind)], ["values"])

    merged = pa.concat_batches([whole, partial])

    assert stored_bytes(merged) <= stored_bytes(whole) + stored_bytes(partial)
    assert merged.nbytes > whole.nbytes + partial.nbytes


def test_row_is_found_where_it_is_stored() -> None:
    """One row is told by its place in the columns of its segment, whichever of many that is."""
    store = RowStore(SCHEMA, max_segment_bytes={SMALL: 1, MAIN: LARGE})
    store.resize(8)
    for number in range(5):
        store.put(slots_of(number), rows_of(number), SMALL)
    store.put(slots_of(5, 6), rows_of(5, 6), MAIN)

    found = [store.row(slot) for slot in range(7)]

    texts = [row.columns[1][row.at].as_py() for row in found]
    assert texts == [f"t{number}" for number in range(7)]
