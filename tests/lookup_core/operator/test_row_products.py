"""Row multiplication: combinations of rows, and lists of equal length."""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.errors import ErrorCode, InvalidRequest
from lookup_core.operator.answered_rows import MAX_JOINED_BYTES
from lookup_core.operator.row_products import RowProducts, TooManyRows, even_lists
from lookup_core.operator.run_answers import RunAnswers

LISTS = pa.schema({"a": pa.list_(pa.int64()), "b": pa.list_(pa.utf8())})


@given(
    counts=st.integers(1, 3).flatmap(
        lambda size: st.lists(st.tuples(*[st.integers(0, 3)] * size), min_size=1, max_size=6)
    ),
    chunk=st.integers(1, 7),
)
def test_rows_are_all_combinations(counts: list[tuple[int, ...]], chunk: int) -> None:
    """In chunks of any size: the combinations of each record, the last lookup first."""
    products = RowProducts([np.array(each, np.int64) for each in zip(*counts, strict=True)])

    found = []
    for start in range(0, products.size, chunk):
        output = products.rows(start, min(start + chunk, products.size))
        records = (output.records + output.start).tolist()
        assert (records[0], records[-1]) == (output.start, output.stop - 1)
        found += list(zip(records, *(each.tolist() for each in output.elements), strict=True))

    assert found == [
        (record, *(element if each else -1 for element, each in zip(place, own, strict=True)))
        for record, own in enumerate(counts)
        for place in np.ndindex(*(max(each, 1) for each in own))
    ]


def test_output_rows_are_cut() -> None:
    """A part of some output rows has their records and elements."""
    output = RowProducts([np.array([2, 3]), np.array([1, 0])]).rows(0, 5).part(slice(1, 4))

    assert (output.start, output.stop, output.records.tolist()) == (0, 2, [0, 1, 1])
    assert [each.tolist() for each in output.elements] == [[1, 0, 1], [0, -1, -1]]


@pytest.mark.parametrize("counts", [[65_536] * 4, [2**31 - 1, 2, 0], [5_000] * 100])
def test_excessive_products_are_refused(counts: list[int]) -> None:
    """A product that 64 bits may not hold is an error; the largest allowed one is counted."""
    largest = RowProducts([np.array([1, 2**31 - 1]), np.array([7, 1])])
    columns = [np.array([1, each]) for each in counts]

    with pytest.raises(TooManyRows, match=f"has {math.prod(max(each, 1) for each in counts):,} "):
        RowProducts(columns)

    assert largest.size == 7 + 2**31 - 1
    assert [each[-1] for each in largest.rows(2**31, 2**31 + 1).elements] == [2**31 - 7, 0]


def test_no_records_have_no_rows() -> None:
    """Without records there is nothing to combine."""
    assert RowProducts([np.zeros(0, np.int64)]).size == 0


def test_null_lists_become_lists_of_nulls() -> None:
    """They get the length of the row's other lists, or one NULL; slices and offsets are kept."""
    rows = pa.record_batch(
        [
            pa.array([[0], [1, 2], None, None, [3]], pa.list_(pa.int64())),
            pa.array([["-"], None, ["x"], None, [None]], pa.list_(pa.utf8())),
        ],
        schema=LISTS,
    ).slice(1)

    even = even_lists(rows, dimension="d")

    assert even.to_pydict() == {
        "a": [[1, 2], [None], [None], [3]],
        "b": [[None, None], ["x"], [None], [None]],
    }
    assert even.schema == LISTS
    assert even_lists(even, dimension="d") is even
    assert even_lists(rows.slice(0, 0), dimension="d").num_rows == 0


def test_uneven_lists_are_refused() -> None:
    """Lists of one row with different lengths have no common rows; the error has both lengths."""
    rows = pa.record_batch([pa.array([[1, 2]]), pa.array([["x"]])], schema=LISTS)

    with pytest.raises(InvalidRequest, match=r"of 'd' has 2 values in .* and 1 in 'b'") as caught:
        even_lists(rows, dimension="d")

    assert caught.value.code is ErrorCode.BAD_REQUEST


def lists_of(*answered: int, max_joined_bytes: int = 0) -> RunAnswers:
    """Three keys with lists of 1, 0 and 2 rows, of which some are answered."""
    answers = RunAnswers(3, LISTS, max_joined_bytes=max_joined_bytes)
    answers.add_keys(np.arange(3), np.arange(3), 3)
    rows = pa.record_batch([[[1], [], [2, 3]], [["é"], [], [None, "xyz"]]], schema=LISTS)
    for key in answered:
        hit, ages_ms = np.array([Outcome.HIT], np.uint8), np.zeros(1, np.uint32)
        answers.store(Answer(np.array([key], np.int32), hit, ages_ms, rows.slice(key, 1)))
    return answers


@pytest.mark.parametrize("max_joined_bytes", [0, MAX_JOINED_BYTES])
@pytest.mark.parametrize("answered", [(0, 1, 2), (2, 0, 1)])
def test_elements_are_taken_from_lists(answered: tuple[int, ...], max_joined_bytes: int) -> None:
    """Elements in any order and number, with their bytes; no element gives NULL."""
    answers = lists_of(*answered, max_joined_bytes=max_joined_bytes)
    rows, elements = np.array([2, 0, 1, 2, 2]), np.array([1, 0, -1, 0, 1])

    taken = answers.elements_at(rows, elements)

    assert answers.counts_at(np.arange(3)).tolist() == [1, 0, 2]
    assert [column.to_pylist() for column in taken] == [
        [3, 1, None, 2, 3],
        ["xyz", "é", None, None, "xyz"],
    ]
    assert answers.element_bytes_at(rows, elements).tolist() == [11, 10, 0, 8, 11]
    assert answers.element_bytes_at(rows[:1], elements[:1]).tolist() == [11]


def test_defaults_are_rows_of_failed_keys() -> None:
    """A key that fails or times out has the default row of its outcome; a missing one has none.

    A key that the client itself finds to be missing has the row of this outcome.
    """
    columns = pa.schema({"name": pa.utf8()})
    outcomes = (Outcome.TIMEOUT, Outcome.ERROR, Outcome.DEFAULT)
    rows = {each: pa.record_batch([[each.label]], schema=columns) for each in outcomes}
    answers = RunAnswers(5, columns, defaults=rows)
    answers.add_keys(np.arange(5), np.array([0, 1, 2, 0, 3]), 4)

    answers.store(rowless_answer(np.array([1], np.int32), Outcome.MISSING))
    answers.store(rowless_answer(np.array([0], np.int32), Outcome.ERROR, error=ErrorCode.TYPE))
    answers.store(answers.without_row(3))
    answers.give_up(Outcome.TIMEOUT, ErrorCode.TIMEOUT)

    names = answers.columns_at(np.arange(5))[0].to_pylist()
    status = answers.status_at(np.arange(5)).to_pylist()
    assert names == ["error", None, "timeout", "error", "default"]
    assert answers.has_row_at(np.arange(5)).tolist() == [True, False, True, True, True]
    assert [each["error"] for each in status] == ["type", None, "timeout", "type", None]
    assert [each["age_ms"] for each in status] == [None, None, None, None, 0]
    answers.check_invariants()
