"""The output of a lookup function."""

import numpy as np
import pyarrow as pa

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.operator.question import Question
from spark_client.output_columns import StructOutput

COLUMNS = pa.schema({"name": pa.utf8()})
RECORDS = pa.record_batch({"id": [1, 2]})


def test_missing_row_is_a_null_struct() -> None:
    """No row gives NULL; a row of NULLs gives a struct of NULLs."""
    question = Question(np.array([0, 1]), key_count=2, columns=COLUMNS)
    nulls = pa.record_batch([pa.nulls(1, pa.utf8())], COLUMNS)
    hit = np.array([Outcome.HIT], np.uint8)
    question.answer(Answer(np.array([0], np.int32), hit, np.array([0], np.uint32), nulls))
    question.answer(rowless_answer(np.array([1], np.int32), Outcome.MISSING))

    built = StructOutput(COLUMNS).build(RECORDS, question, np.array([0, 1]))

    assert built.column(0).to_pylist() == [{"name": None}, None]


def test_empty_output_has_the_struct_type() -> None:
    """No rows, and the type that was promised."""
    empty = StructOutput(COLUMNS).empty()

    assert (empty.num_rows, empty.schema.types) == (0, [pa.struct({"name": pa.utf8()})])
