"""The books that both element queues keep."""

import math

import numpy as np
import pytest

from lookup_core.operator.element_queue import Mark, Slice, SlotId, SlotTable


@pytest.fixture
def table() -> SlotTable:
    """A table with places for ten."""
    return SlotTable(10)


def added(table: SlotTable, size: int, deadline_s: float = math.inf) -> SlotId:
    """Add a slice that fits."""
    slot = table.try_add(Slice(size, deadline_s))
    assert slot is not None
    return slot


def test_complete_returns_new_rows_only(table: SlotTable) -> None:
    """Only rows that were open until now are reported."""
    slot = added(table, 3)

    assert table.complete(slot, np.array([True, False, True])).tolist() == [0, 2]
    assert table.complete(slot, np.array([True, True, False])).tolist() == [1]
    table.check_invariants()


def test_prefix_ends_at_first_open_row(table: SlotTable) -> None:
    """The completed prefix starts behind what has left and ends before what is open."""
    slot = added(table, 4)
    table.complete(slot, np.array([True, True, False, True]))

    assert table.completed_prefix(slot).tolist() == [0, 1]
    assert not table.release(slot, 2)
    assert table.completed_prefix(slot).tolist() == []
    table.complete(slot, np.array([False, False, True, False]))
    assert table.completed_prefix(slot).tolist() == [2, 3]
    table.check_invariants()


def test_slot_goes_with_its_last_row(table: SlotTable) -> None:
    """A slot whose rows have all left is unknown, and its places are free."""
    slot = added(table, 2)
    table.complete(slot, np.ones(2, np.bool_))

    assert not table.release(slot, 1)
    assert table.release(slot, 1)
    assert not table.is_open(slot)
    assert table.free_places() == 10
    table.check_invariants()


def test_deadlines_come_in_any_order(table: SlotTable) -> None:
    """The earliest deadline is found whatever the order of arrival."""
    late, early = added(table, 1, 9.0), added(table, 1, 3.0)

    assert table.next_deadline() == 3.0
    assert [each.slot for each in table.expire(3.0)] == [early]
    assert [each.slot for each in table.expire(100.0)] == [late]
    assert table.next_deadline() is None


def test_mark_has_no_rows(table: SlotTable) -> None:
    """A watermark is told from a slice, and is never open."""
    mark = table.try_add(Mark())

    assert mark is not None
    assert table.is_mark(mark)
    assert not table.is_mark(added(table, 1))
    assert not table.is_open(mark)
