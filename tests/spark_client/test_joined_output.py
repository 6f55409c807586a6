"""The output of a lookup join."""

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.operator.element_queue import Positions
from lookup_core.operator.question import Question
from spark_client.output_columns import JoinedOutput, joined_output

COLUMNS = pa.schema({"name": pa.utf8()})
RECORDS = pa.record_batch({"id": [7, 8, 7, 9], "n": [0, 1, 2, 3]})


@pytest.fixture
def question() -> Question:
    """Four records that ask for three keys, of which the second is missing."""
    question = Question(np.array([0, 1, 0, 2]), key_count=3, columns=COLUMNS)
    names = pa.record_batch([pa.array(["seven", "nine"])], COLUMNS)
    hit = np.full(2, Outcome.HIT, np.uint8)
    question.answer(Answer(np.array([0, 2], np.int32), hit, np.array([1, 2], np.uint32), names))
    question.answer(rowless_answer(np.array([1], np.int32), Outcome.MISSING))
    return question


def output(*, status: str | None = None, inner: bool = False) -> JoinedOutput:
    """An output with the dimension's column prefixed."""
    return joined_output(RECORDS.schema, COLUMNS, prefix="c_", status_column=status, is_inner=inner)


def rows(*positions: int) -> Positions:
    """Rows of the records."""
    return np.array(positions, np.intp)


def test_columns_stand_beside_the_records(question: Question) -> None:
    """All rows, a range of them, or some: each record has its own row of the dimension."""
    expected = [
        {"id": 7, "n": 0, "c_name": "seven"},
        {"id": 8, "n": 1, "c_name": None},
        {"id": 7, "n": 2, "c_name": "seven"},
        {"id": 9, "n": 3, "c_name": "nine"},
    ]

    for some in ([0, 1, 2, 3], [1, 2], [0, 3], []):
        built = output().build(RECORDS, question, rows(*some))
        assert built.to_pylist() == [expected[row] for row in some]
        assert built.schema == output().schema


def test_inner_drops_records_without_row(question: Question) -> None:
    """What found nothing does not come out."""
    built = output(inner=True).build(RECORDS, question, rows(0, 1, 3))

    assert built.column("id").to_pylist() == [7, 9]


def test_status_stands_last(question: Question) -> None:
    """The status column tells each record how its lookup ended."""
    built = output(status="_s").build(RECORDS, question, rows(1, 3))

    assert built.column("_s").to_pylist() == [
        {"outcome": "missing", "age_ms": None, "error": None},
        {"outcome": "hit", "age_ms": 2, "error": None},
    ]


def test_empty_output_has_the_same_schema() -> None:
    """A batch without rows is like any other."""
    empty = output(status="_s").empty()

    assert empty.num_rows == 0
    assert empty.schema == output(status="_s").schema
    assert empty.schema.names == ["id", "n", "c_name", "_s"]


def test_untouched_records_are_not_copied(question: Question) -> None:
    """A range of records is a view of the input's memory."""
    built = output().build(RECORDS, question, rows(1, 2))

    assert built.column("n").buffers()[1].address == RECORDS.column("n").buffers()[1].address
