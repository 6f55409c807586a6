"""The dimension's rows that answers brought."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_core.operator.question import AnsweredRows

COLUMNS = pa.schema({"name": pa.utf8(), "size": pa.int32()})


def rows(*names: str | None) -> pa.RecordBatch:
    """Rows whose size is the length of their name."""
    sizes = [None if name is None else len(name) for name in names]
    return pa.record_batch([pa.array(names, pa.utf8()), pa.array(sizes, pa.int32())], COLUMNS)


@pytest.fixture
def answered() -> AnsweredRows:
    """Five keys, of which three have a row, from two answers."""
    answered = AnsweredRows(5, COLUMNS)
    answered.add(np.array([3, 1]), rows("three", "one"))
    answered.add(np.array([4]), rows(None))
    return answered


def taken(answered: AnsweredRows, *keys: int) -> list[list[object]]:
    """The columns for keys, as lists."""
    columns = answered.take(np.array(keys, np.intp))
    assert [column.type for column in columns] == COLUMNS.types
    answered.check_invariants()
    return [column.to_pylist() for column in columns]


def test_keys_without_row_give_nulls(answered: AnsweredRows) -> None:
    """Columns are null where a key has no row, also where none has."""
    assert taken(answered, 1, 0, 1, 3) == [["one", None, "one", "three"], [3, None, 3, 5]]
    assert taken(answered, 0, 2) == [[None, None], [None, None]]
    assert taken(answered) == [[], []]


def test_rows_of_several_answers_mix(answered: AnsweredRows) -> None:
    """Keys whose rows came in different answers are taken together, before and after."""
    assert taken(answered, 4, 3) == [[None, "three"], [None, 5]]
    answered.add(np.array([0]), rows("zero"))
    assert taken(answered, 0) == [["zero"], [4]]
    assert taken(answered, 0, 1) == [["zero", "one"], [4, 3]]


def test_sizes_of_rows_are_known(answered: AnsweredRows) -> None:
    """What a row takes is its fixed columns and its texts; nothing without a row."""
    assert answered.bytes_of(np.array([0, 1, 3, 4])).tolist() == [0, 7, 9, 4]
    assert answered.most_row_bytes == 9
    assert answered.nbytes > 0


def test_rows_may_have_no_columns() -> None:
    """A lookup that asks for no column still knows which keys have a row."""
    answered = AnsweredRows(3, pa.schema([]))

    answered.add(np.array([2]), pa.record_batch([], pa.schema([])))

    assert answered.take(np.array([0, 2])) == []
    answered.check_invariants()


def test_askers_may_share_rows(answered: AnsweredRows) -> None:
    """Several askers have one row, and a row that nobody has harms nobody."""
    answered.add(np.array([0, 2]), rows("nobody's", "shared"), np.array([1, 1]))

    assert taken(answered, 2, 0, 3) == [["shared", "shared", "three"], [6, 6, 5]]
    assert answered.has(np.arange(5)).all()
    assert answered.bytes_of(np.array([0, 2])).tolist() == [10, 10]


def test_askers_without_row_are_known(answered: AnsweredRows) -> None:
    """Who has a row is told without taking it."""
    assert answered.has(np.array([4, 0, 1])).tolist() == [True, False, True]


@given(st.permutations(list(range(12))), st.lists(st.integers(0, 11), max_size=20), st.data())
def test_any_partition_into_answers_is_the_same(
    order: list[int], wanted: list[int], choice: st.DataObject
) -> None:
    """However the rows arrive, a key gives its own row."""
    answered = AnsweredRows(12, COLUMNS)
    cuts = sorted(choice.draw(st.sets(st.integers(1, 11), max_size=4)))
    for keys in np.split(np.array(order), cuts):
        answered.add(keys, rows(*(f"row {key}" for key in keys)))

    assert taken(answered, *wanted)[0] == [f"row {key}" for key in wanted]
