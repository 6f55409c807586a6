"""A run of rows that was asked about at once, and its answers."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.errors import ErrorCode, ProtocolViolation
from lookup_core.operator.as_of import NEVER_US, AsOf, VersionPick
from lookup_core.operator.question import Question

COLUMNS = pa.schema({"name": pa.utf8()})
ROWS = np.arange(6)


@pytest.fixture
def question() -> Question:
    """Six rows that ask for four keys."""
    return Question(np.array([0, 1, 2, 1, 3, 0]), key_count=4, columns=COLUMNS)


def positions(*keys: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """Positions as they come in an answer."""
    return np.array(keys, np.int32)


def hits(*keys: int, age_ms: int = 7) -> Answer:
    """An answer with a row for each key, named after it."""
    rows = pa.record_batch([pa.array([f"key {key}" for key in keys])], COLUMNS)
    outcomes = np.full(len(keys), Outcome.HIT, np.uint8)
    return Answer(positions(*keys), outcomes, np.full(len(keys), age_ms, np.uint32), rows)


def mask(question: Question, answer: Answer) -> list[int] | None:
    """Which rows an answer ends."""
    rows = question.answer(answer)
    question.check_invariants()
    return None if rows is None else np.flatnonzero(rows).tolist()


def test_answer_ends_all_rows_of_its_keys(question: Question) -> None:
    """Every row that asks for an answered key is done, the others are not."""
    assert mask(question, hits(1)) == [1, 3]
    assert question.open_keys == 3
    assert mask(question, hits(3, 0, 2)) == [0, 2, 4, 5]
    assert question.open_keys == 0


def test_first_answer_to_a_key_counts(question: Question) -> None:
    """A second answer changes nothing, a mixed one only what is new."""
    question.answer(rowless_answer(positions(0), Outcome.MISSING))

    assert mask(question, hits(0, 3)) == [4]
    assert mask(question, hits(0, 3)) is None
    assert question.columns_at(ROWS[[0, 4]])[0].to_pylist() == [None, "key 3"]


def test_late_error_of_answered_key_is_ignored(question: Question) -> None:
    """An error for a key that has its row leaves no trace."""
    question.answer(hits(0))
    late = rowless_answer(positions(0, 1), Outcome.ERROR, error=ErrorCode.TYPE)

    assert mask(question, late) == [1, 3]
    assert question.status_at(ROWS[[0, 1]]).field("error").to_pylist() == [None, "type"]


def test_giving_up_ends_what_is_open(question: Question) -> None:
    """Keys without an answer end in the outcome given, and later answers are ignored."""
    question.answer(hits(0))

    rows = question.give_up(Outcome.TIMEOUT, ErrorCode.TIMEOUT)

    assert rows is not None
    assert np.flatnonzero(rows).tolist() == [1, 2, 3, 4]
    assert question.give_up(Outcome.TIMEOUT, ErrorCode.TIMEOUT) is None
    assert mask(question, hits(1, 2, 3)) is None
    assert question.errors_with(Outcome.TIMEOUT) == [ErrorCode.TIMEOUT]
    assert question.errors_with(Outcome.ERROR) == []


def test_status_tells_outcome_age_and_error(question: Question) -> None:
    """One struct beside each row; no age where there is no row, no error where there is none."""
    question.answer(hits(0, age_ms=12))
    question.answer(rowless_answer(positions(1), Outcome.MISSING))
    question.answer(rowless_answer(positions(2), Outcome.ERROR, error=ErrorCode.INVALID_TEXT))
    question.give_up(Outcome.TIMEOUT, ErrorCode.TIMEOUT)

    assert question.status_at(ROWS[1:]).to_pylist() == [
        {"outcome": "missing", "age_ms": None, "error": None},
        {"outcome": "error", "age_ms": None, "error": "invalid_text"},
        {"outcome": "missing", "age_ms": None, "error": None},
        {"outcome": "timeout", "age_ms": None, "error": "timeout"},
        {"outcome": "hit", "age_ms": 12, "error": None},
    ]
    assert question.has_row_at(ROWS).tolist() == [True, False, False, False, False, True]


def test_status_without_any_error(question: Question) -> None:
    """The error column is there also when nothing went wrong."""
    question.answer(hits(0, 1, 2, 3))

    assert question.status_at(ROWS[:1]).to_pylist() == [
        {"outcome": "hit", "age_ms": 7, "error": None}
    ]


def test_pieces_are_bounded_in_bytes(question: Question) -> None:
    """Rows are parted where their columns would exceed the bound; one row is the least."""
    question.answer(hits(0, 1, 2, 3))  # five bytes each

    def pieces(max_bytes: int) -> list[list[int]]:
        return [part.tolist() for part in question.pieces(ROWS, max_bytes=max_bytes)]

    assert pieces(30) == [[0, 1, 2, 3, 4, 5]]
    assert pieces(12) == [[0, 1], [2, 3], [4, 5]]
    assert pieces(1) == [[0], [1], [2], [3], [4], [5]]
    assert question.answer_bytes > 0
    assert question.row_count == 6


TIMES_US = np.array([5, 15, 15, 0, 99, NEVER_US])
LISTS = pa.schema({"name": pa.list_(pa.utf8()), "since": pa.list_(pa.timestamp("us"))})


@pytest.fixture
def timed() -> Question:
    """Six rows that ask for four keys, each as of a time."""
    as_of = AsOf(TIMES_US, VersionPick(COLUMNS, 1, None))
    codes = np.array([0, 0, 1, 1, 2, 0])
    return Question(codes, key_count=3, columns=COLUMNS, as_of=as_of)


def versions(*keys: int) -> Answer:
    """An answer with two versions of each key, from 1 and from 10 on."""
    names = [[f"old {key}", f"new {key}"] for key in keys]
    columns = [pa.array(names), pa.array([[1, 10]] * len(keys), LISTS.types[1])]
    outcomes = np.full(len(keys), Outcome.HIT, np.uint8)
    ages_ms = np.full(len(keys), 7, np.uint32)
    return Answer(positions(*keys), outcomes, ages_ms, pa.record_batch(columns, schema=LISTS))


def test_each_row_has_the_version_of_its_time(timed: Question) -> None:
    """Rows that ask for one key differ, however the answers came; one without a time has none."""
    assert mask(timed, versions(2, 0)) == [0, 1, 4, 5]
    assert mask(timed, versions(1, 0)) == [2, 3]

    (names,) = timed.columns_at(ROWS)
    assert names.to_pylist() == ["old 0", "new 0", "new 1", None, "new 2", None]
    assert timed.columns_at(ROWS[[4, 1]])[0].to_pylist() == ["new 2", "new 0"]


def test_row_without_a_version_is_missing(timed: Question) -> None:
    """Its key has a row, but none for its time: as without one; failures stay what they are."""
    timed.answer(versions(0, 1))
    timed.answer(rowless_answer(positions(2), Outcome.ERROR, error=ErrorCode.TYPE))

    status = timed.status_at(ROWS).to_pylist()
    outcomes = ["hit", "hit", "hit", "missing", "error", "missing"]
    assert [each["outcome"] for each in status] == outcomes
    assert [each["age_ms"] for each in status] == [7, 7, 7, None, None, None]
    assert timed.has_row_at(ROWS).tolist() == [True, True, True, False, False, False]
    assert [len(piece) for piece in timed.pieces(ROWS, max_bytes=12)] == [2, 4]


def test_strange_versions_change_nothing(timed: Question) -> None:
    """An answer that does not hold together is refused before anything is noted."""
    answer = versions(0)
    strange = answer.rows.set_column(0, "name", pa.array([["one"]]))  # type: ignore[union-attr]

    with pytest.raises(ProtocolViolation, match="equally long"):
        timed.answer(replace(answer, rows=strange))

    assert timed.open_keys == 3
    assert mask(timed, answer) == [0, 1, 5]
