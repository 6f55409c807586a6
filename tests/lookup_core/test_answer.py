"""Answers in columns: n keys, their outcomes, and rows for all or for none."""

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.errors import ErrorCode


def plain(answer: Answer) -> tuple[list[int], list[int], list[int], object, object]:
    """All that an answer says, as plain values."""
    columns = (answer.positions, answer.outcomes, answer.ages_ms)
    positions, outcomes, ages_ms = (column.tolist() for column in columns)
    return positions, outcomes, ages_ms, answer.rows, answer.errors


def test_rowless_answer_treats_all_alike() -> None:
    """All positions get the same outcome, no age, no row and no error."""
    answer = rowless_answer(np.array([4, 0], np.int32), Outcome.MISSING)

    assert plain(answer) == ([4, 0], [Outcome.MISSING, Outcome.MISSING], [0, 0], None, {})
    assert answer.size == 2


def test_error_names_each_position() -> None:
    """With an error code, each position has it under its own number."""
    positions = np.array([4, 0], np.int32)

    answer = rowless_answer(positions, Outcome.ERROR, error=ErrorCode.FORBIDDEN)

    assert answer.errors == {4: ErrorCode.FORBIDDEN, 0: ErrorCode.FORBIDDEN}


@pytest.mark.parametrize("error", [None, ErrorCode.TIMEOUT])
def test_no_positions_make_empty_answer(error: ErrorCode | None) -> None:
    """An answer to no keys is possible, and says nothing."""
    answer = rowless_answer(np.array([], np.int32), Outcome.TIMEOUT, error=error)

    assert plain(answer) == ([], [], [], None, {})


def test_columns_have_the_wire_types() -> None:
    """The columns travel as they are, so they have the types of the wire."""
    answer = rowless_answer(np.array([1], np.int32), Outcome.MISSING)

    columns = (answer.positions, answer.outcomes, answer.ages_ms)
    assert [column.dtype for column in columns] == [np.int32, np.uint8, np.uint32]


@pytest.mark.parametrize(("max_bytes", "sizes"), [(10**6, [5]), (2_100, [2, 2, 1]), (1, [1] * 5)])
def test_pieces_bound_the_bytes_of_rows(max_bytes: int, sizes: list[int]) -> None:
    """An answer is cut between its rows until each part is small; a row is never cut."""
    rows = pa.record_batch({"text": ["x" * 1_000] * 5})
    numbers = np.arange(5, dtype=np.int32)
    answer = Answer(numbers, np.zeros(5, np.uint8), numbers.astype(np.uint32), rows)

    pieces = list(answer.pieces(max_bytes))

    assert [piece.size for piece in pieces] == sizes
    assert np.concatenate([piece.positions for piece in pieces]).tolist() == [0, 1, 2, 3, 4]
    assert np.concatenate([piece.ages_ms for piece in pieces]).tolist() == [0, 1, 2, 3, 4]
    assert pa.Table.from_batches([piece.rows for piece in pieces]) == pa.Table.from_batches([rows])


def test_answer_without_rows_is_one_piece() -> None:
    """Outcomes alone are small, so they stay together with their errors."""
    answer = rowless_answer(np.arange(3, dtype=np.int32), Outcome.ERROR, error=ErrorCode.TYPE)

    assert list(answer.pieces(1)) == [answer]


def test_moved_answer_names_other_positions() -> None:
    """The same outcomes for keys that stand further on; the original stays as it is."""
    answer = rowless_answer(np.array([1, 0], np.int32), Outcome.ERROR, error=ErrorCode.TYPE)

    moved = answer.moved(5)

    assert moved.positions.tolist() == [6, 5]
    assert moved.positions.dtype == answer.positions.dtype
    assert moved.errors == {6: ErrorCode.TYPE, 5: ErrorCode.TYPE}
    assert answer.positions.tolist() == [1, 0]
    assert answer.moved(0) is answer


def test_bytes_are_those_of_rows_and_outcomes() -> None:
    """What an answer takes: its rows, nine bytes a key, and something for each error."""
    positions = np.arange(3, dtype=np.int32)
    missing = rowless_answer(positions, Outcome.MISSING)
    rows = pa.record_batch({"n": pa.array([1, 2, 3], pa.int64())})

    assert missing.total_bytes == 27
    assert Answer(positions, missing.outcomes, missing.ages_ms, rows).total_bytes == 27 + 24
    assert rowless_answer(positions, Outcome.ERROR, error=ErrorCode.TYPE).total_bytes == 327
