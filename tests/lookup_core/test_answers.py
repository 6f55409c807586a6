"""Answers: outcomes in columns, pieces, and the bytes of answers and rows."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.errors import ErrorCode
from lookup_core.row_bytes import largest_column, most_row_bytes, row_bytes


def positions(*numbers: int) -> npt.NDArray[np.int32]:
    """Positions in a lookup."""
    return np.array(numbers, np.int32)


@pytest.mark.parametrize(("max_bytes", "sizes"), [(10**6, [5]), (2_100, [2, 2, 1]), (1, [1] * 5)])
def test_pieces_bound_bytes_of_rows(max_bytes: int, sizes: list[int]) -> None:
    """An answer is split between its rows; a piece has at least one row."""
    rows, numbers = pa.record_batch({"text": ["x" * 1_000] * 5}), positions(*range(5))
    answer = Answer(numbers, np.zeros(5, np.uint8), numbers.astype(np.uint32), rows)

    pieces = list(answer.pieces(max_bytes))

    assert [piece.size for piece in pieces] == sizes
    assert np.concatenate([piece.positions for piece in pieces]).tolist() == [0, 1, 2, 3, 4]
    assert np.concatenate([piece.ages_ms for piece in pieces]).tolist() == [0, 1, 2, 3, 4]
    assert pa.Table.from_batches([piece.rows for piece in pieces]) == pa.Table.from_batches([rows])


def test_answer_can_name_other_positions() -> None:
    """Moved and placed answers name other positions; without rows an answer is one piece."""
    answer = rowless_answer(positions(1, 0), Outcome.ERROR, error=ErrorCode.TYPE)

    moved, placed = answer.moved(5), answer.placed(positions(7, 9))

    assert moved.positions.tolist() == [6, 5]
    assert moved.positions.dtype == answer.positions.dtype
    assert moved.errors == dict.fromkeys([6, 5], ErrorCode.TYPE)
    assert placed.positions.tolist() == [9, 7]
    assert placed.errors == dict.fromkeys([9, 7], ErrorCode.TYPE)
    assert answer.moved(0) is answer
    assert list(answer.pieces(1)) == [answer]


def test_answer_bytes_count_rows_and_keys() -> None:
    """An answer takes its rows, nine bytes for each key and a hundred for each error."""
    missing = rowless_answer(positions(0, 1, 2), Outcome.MISSING)
    rows = pa.record_batch({"n": pa.array([1, 2, 3], pa.int64())})
    found = Answer(missing.positions, missing.outcomes, missing.ages_ms, rows)
    failed = rowless_answer(positions(0, 1, 2), Outcome.ERROR, error=ErrorCode.TYPE)

    assert [each.total_bytes for each in (missing, found, failed)] == [27, 27 + 24, 27 + 300]


LISTS = pa.record_batch(
    [
        pa.array([["far"], ["ab", None, "é"], None, [], ["x"]], pa.list_(pa.utf8())),
        pa.array([[1], [1, 2, 3], None, [], [None]], pa.list_(pa.int16())),
    ],
    ["texts", "numbers"],
)
STRUCTS = pa.record_batch(
    {
        "s": pa.array(
            [{"a": 1, "b": ["x", "y"]}, {"a": None, "b": None}, None],
            pa.struct({"a": pa.int32(), "b": pa.list_(pa.utf8())}),
        )
    }
)
FLAT = pa.record_batch(
    [
        pa.array(["abc", None, "é"]),
        pa.array([b"12", b"", None], pa.large_binary()),
        pa.array([1, 2, None], pa.int32()),
        pa.array([True, False, None]),
    ],
    ["text", "bytes", "number", "flag"],
)


@pytest.mark.parametrize(
    ("rows", "expected", "most"),
    [
        (FLAT, [3 + 2 + 4 + 1, 4 + 1, 2 + 4 + 1], 3 + 2 + 4 + 1),
        (LISTS, [3 + 2, 4 + 6, 0, 0, 1 + 2], 4 + 6),
        (LISTS.slice(1, 3), [10, 0, 0], 10),
        (LISTS.slice(0, 0), [], 0),
        (pa.record_batch({"a": ["abc", ""], "b": [[1], [1, 2]]}), [3 + 8, 16], 3 + 16),
        (STRUCTS, [4 + 2, 4, 4], 4 + 2),
        (STRUCTS.slice(1, 2), [4, 4], 4),
        (pa.record_batch([], []), [], 0),
    ],
    ids=["flat", "lists", "slice", "no rows", "unlike", "structs", "their slice", "no columns"],
)
def test_row_bytes_are_lengths_and_widths(
    rows: pa.RecordBatch, expected: list[int], most: int
) -> None:
    """The bytes of a row are those of its values, 0 for NULL; no row exceeds the bound."""
    assert row_bytes(rows).tolist() == expected
    assert most_row_bytes(rows) == most


def test_row_bytes_of_records_have_any_type() -> None:
    """Records, unlike rows of dimensions, may have maps, large lists and columns of NULLs."""
    records = pa.record_batch(
        [
            pa.array([[("a", 1)], None, [("bc", None), ("", 2)]], pa.map_(pa.utf8(), pa.int64())),
            pa.array([[1], [], None], pa.large_list(pa.int32())),
            pa.nulls(3),
        ],
        ["map", "large", "null"],
    )

    assert row_bytes(records).tolist() == [13, 0, 18]
    assert largest_column(records) == "map"
    assert row_bytes(records.slice(1)).tolist() == [0, 18]
