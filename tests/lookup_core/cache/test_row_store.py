"""Rows by slot in segments: found again whatever was merged, compacted or dropped since."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lookup_core.cache.row_store import Gathered, RowStore, stored_bytes
from lookup_core.keys.key_index import Slots

SCHEMA = pa.schema({"number": pa.int64(), "text": pa.utf8(), "truth": pa.bool_()})
LARGE = 10**9


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


def new_store(*, slots: int = 100, max_segment_bytes: int = LARGE) -> RowStore:
    """A store with room for slots."""
    store = RowStore(SCHEMA, max_segment_bytes=max_segment_bytes)
    store.resize(slots)
    return store


@pytest.mark.parametrize("max_segment_bytes", [1, LARGE])
def test_rows_are_gathered_by_slot(max_segment_bytes: int) -> None:
    """Rows come for any slots in any order, from one segment or several, duplicates included."""
    store = new_store(max_segment_bytes=max_segment_bytes)
    store.put(slots_of(3, 1), rows_of(30, 10))
    store.put(slots_of(7), rows_of(70))

    gathered = store.gather(slots_of(7, 1, 7, 3), ["text"])

    assert in_order(gathered) == ["t70", "t10", "t70", "t30"]
    assert gathered.rows.schema.names == ["text"]
    store.check_invariants()


@pytest.mark.parametrize("max_segment_bytes", [1, LARGE])
def test_columns_come_as_asked(max_segment_bytes: int) -> None:
    """Columns come in the order asked; without any, the rows are still counted."""
    store = new_store(max_segment_bytes=max_segment_bytes)
    store.put(slots_of(0), rows_of(10))
    store.put(slots_of(1), rows_of(None))

    assert store.gather(slots_of(0, 1), ["truth", "number"]).rows.to_pydict() == {
        "truth": [True, None],
        "number": [10, None],
    }
    assert store.gather(slots_of(0, 1, 1), []).rows.num_rows == 3


def test_no_slots_give_no_rows() -> None:
    """Nothing may be put, gathered and removed, also where nothing is stored."""
    store = new_store()
    empty = slots_of()

    store.put(empty, rows_of())
    store.remove(empty)

    assert store.gather(empty, ["text", "number"]).rows.to_pydict() == {"text": [], "number": []}
    assert (store.oldest_slots().tolist(), store.row_bytes) == ([], 0)
    store.check_invariants()


def test_removed_slot_takes_another_row() -> None:
    """A slot that is used again has the new row only."""
    store = new_store()
    store.put(slots_of(1, 2, 3), rows_of(10, 20, 30))

    store.remove(slots_of(2))
    store.put(slots_of(2), rows_of(21))

    assert in_order(store.gather(slots_of(1, 2, 3), ["text"])) == ["t10", "t21", "t30"]
    store.check_invariants()


def test_oldest_rows_come_first() -> None:
    """The oldest segment holds what was put first; when it goes, the next one is the oldest."""
    store = new_store(max_segment_bytes=1)
    for slot in (5, 2, 9):
        store.put(slots_of(slot), rows_of(slot))

    store.remove(slots_of(5))

    assert store.oldest_slots().tolist() == [2]


def test_small_segments_are_merged() -> None:
    """Rows that come one by one are not kept one by one."""
    store = new_store(slots=256)

    for slot in range(256):
        store.put(slots_of(slot), rows_of(slot))

    assert len(store.oldest_slots()) > 128
    assert store.bytes < 256 * 45
    store.check_invariants()


def test_large_segments_are_not_merged() -> None:
    """A segment never grows beyond the size at which the oldest rows go."""
    limit = stored_bytes(rows_of(10, 11, 12, 13))
    store = new_store(max_segment_bytes=limit)

    for slot in range(64):
        store.put(slots_of(slot), rows_of(10))

    oldest = store.oldest_slots()
    assert len(oldest) > 1
    assert stored_bytes(store.gather(oldest, SCHEMA.names).rows) <= limit


def test_survivors_do_not_scatter() -> None:
    """What few rows outlive is merged with its neighbours, so that gathering stays cheap."""
    store = new_store(max_segment_bytes=stored_bytes(rows_of(*range(10, 23))))
    for first, last in ((0, 4), (10, 20), (30, 34)):
        store.put(slots_of(*range(first, last)), rows_of(*range(first, last)))
    assert store.oldest_slots().tolist() == [0, 1, 2, 3]

    store.remove(slots_of(*range(10, 18)))

    survivors = [0, 1, 2, 3, 18, 19, 30, 31, 32, 33]
    assert store.oldest_slots().tolist() == survivors
    found = in_order(store.gather(slots_of(*survivors), ["text"]))
    assert found == [f"t{slot}" for slot in survivors]
    store.check_invariants()


def test_large_elder_is_not_copied() -> None:
    """A segment waits for one half its size: else each small one would copy all rows again."""
    store = new_store()
    store.put(slots_of(*range(10)), rows_of(*range(10)))

    store.put(slots_of(10, 11, 12, 13), rows_of(10, 11, 12, 13))
    assert len(store.oldest_slots()) == 10

    store.put(slots_of(14, 15), rows_of(14, 15))
    assert len(store.oldest_slots()) == 16


def test_neighbours_can_shrink_together() -> None:
    """Rows of several segments go at once, also where one is merged into the other on the way."""
    store = new_store()
    store.put(slots_of(*range(10)), rows_of(*range(10)))
    store.put(slots_of(10, 11, 12, 13), rows_of(10, 11, 12, 13))

    store.remove(slots_of(*range(8), 10, 11, 12))

    assert in_order(store.gather(store.oldest_slots(), ["text"])) == ["t8", "t9", "t13"]
    store.check_invariants()


def test_dead_rows_are_given_back() -> None:
    """Where more than half is dead, only what lives keeps memory."""
    store = new_store()
    store.put(slots_of(*range(100)), rows_of(*range(100)))
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
    store.put(slots_of(*range(50)), elder)
    bound = store.row_bytes + stored_bytes(younger)

    store.put(slots_of(*range(50, 100)), younger)

    held = store.gather(slots_of(*range(100)), SCHEMA.names).rows
    assert len(store.oldest_slots()) == 100  # they were merged
    assert held.get_total_buffer_size() + 100 * 4 <= store.row_bytes <= bound


class RowStoreMachine(RuleBasedStateMachine):
    """A store against {slot: (when it was put, row)}."""

    def __init__(self) -> None:
        super().__init__()
        self.store = RowStore(SCHEMA, max_segment_bytes=600)
        self.slot_count = 0
        self.held: dict[int, tuple[int, int | None]] = {}
        self.puts = 0
        self.bound = 0  # of the bytes: all rows that were put
        self.grow(40)

    @rule(more=st.integers(0, 40))
    def grow(self, more: int) -> None:
        """Make room."""
        self.slot_count += more
        self.store.resize(self.slot_count)

    @rule(data=st.data(), numbers=st.lists(st.none() | st.integers(0, 99), max_size=20))
    def put(self, data: st.DataObject, numbers: list[int | None]) -> None:
        """Put rows into slots that have none."""
        free = sorted(set(range(self.slot_count)) - set(self.held))
        slots = data.draw(st.permutations(free))[: len(numbers)]
        rows = rows_of(*numbers[: len(slots)])
        self.store.put(slots_of(*slots), rows)
        self.bound += stored_bytes(rows)
        self.puts += 1
        self.held |= {
            slot: (self.puts, number) for slot, number in zip(slots, numbers, strict=False)
        }

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        """Remove some rows."""
        self._remove(data.draw(st.sets(st.sampled_from(sorted(self.held)))) if self.held else set())

    @rule()
    def remove_oldest(self) -> None:
        """Remove the oldest segment."""
        self._remove(set(self.store.oldest_slots().tolist()))

    @rule(data=st.data())
    def gather(self, data: st.DataObject) -> None:
        """Gather some rows, duplicates included."""
        slots = data.draw(st.lists(st.sampled_from(sorted(self.held)))) if self.held else []
        found = in_order(self.store.gather(slots_of(*slots), ["number", "text"]))
        numbers = [self.held[slot][1] for slot in slots]
        assert found == [None if number is None else f"t{number}" for number in numbers]

    @invariant()
    def holds_the_same(self) -> None:
        """All rows are there, the oldest ones in the oldest segment, within the bytes foretold."""
        self.store.check_invariants()
        oldest = set(self.store.oldest_slots().tolist())
        ages = {slot: put for slot, (put, _) in self.held.items()}
        youngest = max((ages[slot] for slot in oldest), default=0)
        assert bool(oldest) == bool(self.held)
        assert all(put >= youngest for slot, put in ages.items() if slot not in oldest)
        assert self.store.row_bytes <= self.bound

    def _remove(self, slots: set[int]) -> None:
        self.store.remove(slots_of(*slots))
        for slot in slots:
            del self.held[slot]


TestRowStoreMachine = RowStoreMachine.TestCase
TestRowStoreMachine.settings = settings(max_examples=50, stateful_step_count=25)
