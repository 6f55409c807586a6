"""Output batches: joined columns, structs, and exact casts of the dimension's columns."""

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.errors import InvalidRequest
from lookup_core.operator.question import Question
from lookup_core.operator.records_in_flight import Leaving
from spark_client.lookup_settings import JoinType
from spark_client.output_columns import (
    AddedOutput,
    AddedPart,
    JoinedOutput,
    StructOutput,
    column_casts,
    joined_output,
)

COLUMNS = pa.schema({"name": pa.utf8()})
RECORDS = pa.record_batch({"id": [7, 8, 7, 9], "n": [0, 1, 2, 3]})
ROWS = [
    {"id": 7, "n": 0, "c_name": "seven"},
    {"id": 8, "n": 1, "c_name": None},
    {"id": 7, "n": 2, "c_name": "seven"},
    {"id": 9, "n": 3, "c_name": None},
]


@pytest.fixture
def question() -> Question:
    """Four records with three keys: a row, a missing one, and a row of nulls."""
    question = Question(4, COLUMNS)
    question.ask(np.arange(4), np.array([0, 1, 0, 2]), 3)
    names = pa.record_batch([pa.array(["seven", None])], COLUMNS)
    hit = np.full(2, Outcome.HIT, np.uint8)
    question.answer(Answer(np.array([0, 2], np.int32), hit, np.array([1, 2], np.uint32), names))
    question.answer(rowless_answer(np.array([1], np.int32), Outcome.MISSING))
    return question


def output(*, status: str | None = None, how: JoinType = JoinType.LEFT) -> JoinedOutput:
    """An output with the dimension's column prefixed."""
    return joined_output(RECORDS.schema, [AddedPart(COLUMNS, how, "c_", status)])


def rows_of(question: Question, *rows: int) -> Leaving:
    """Some of the records."""
    return Leaving(RECORDS, [question], np.array(rows, np.intp))


@pytest.mark.parametrize("rows", [[0, 1, 2, 3], [1, 2], [0, 3], []])
def test_columns_stand_next_to_the_records(question: Question, rows: list[int]) -> None:
    """All rows, a range of them, or some: each record has the row of its key."""
    built = output().build(rows_of(question, *rows))

    assert built.to_pylist() == [ROWS[row] for row in rows]
    assert built.schema == output().schema


def test_inner_output_drops_missing_rows(question: Question) -> None:
    """A record without a row does not leave; one with a row of nulls does."""
    built = output(how=JoinType.INNER).build(rows_of(question, 0, 1, 3))

    assert built.column("id").to_pylist() == [7, 9]


def test_status_stands_last(question: Question) -> None:
    """The status column has the outcome and the age of each lookup."""
    built = output(status="_s").build(rows_of(question, 1, 3))

    assert built.schema.names == ["id", "n", "c_name", "_s"]
    assert built.column("_s").to_pylist() == [
        {"outcome": "missing", "age_ms": None, "error": None},
        {"outcome": "hit", "age_ms": 2, "error": None},
    ]


def test_empty_output_has_the_same_schema() -> None:
    """An empty batch has the schema of the others."""
    empty, structs = output(status="_s").empty(), StructOutput(COLUMNS).empty()

    assert (empty.num_rows, empty.schema) == (0, output(status="_s").schema)
    assert (structs.num_rows, structs.schema.types) == (0, [pa.struct({"name": pa.utf8()})])


def test_untouched_records_are_not_copied(question: Question) -> None:
    """A range of records is a view of the input's memory."""
    built = output().build(rows_of(question, 1, 2))

    assert built.column("n").buffers()[1].address == RECORDS.column("n").buffers()[1].address


def test_missing_row_is_a_null_struct(question: Question) -> None:
    """A missing row gives NULL; a row of nulls gives a struct of nulls."""
    built = StructOutput(COLUMNS).build(rows_of(question, 0, 1, 3))

    assert built.column(0).to_pylist() == [{"name": "seven"}, None, {"name": None}]


def test_added_columns_are_fields_of_a_struct(question: Question) -> None:
    """All rows stay, in order, and the last field is whether the record leaves."""
    parts = [AddedPart(COLUMNS, JoinType.INNER, "c_", "_s"), AddedPart(COLUMNS, JoinType.LEFT)]
    output = AddedOutput(parts)

    built = output.build(Leaving(RECORDS, [question, question], np.array([0, 1, 3])))

    hit = {"outcome": "hit", "age_ms": 1, "error": None}
    missing = {"outcome": "missing", "age_ms": None, "error": None}
    assert built.schema == output.empty().schema
    assert built.column(0).to_pylist() == [
        {"0": "seven", "1": hit, "2": "seven", "3": True},
        {"0": None, "1": missing, "2": None, "3": False},
        {"0": None, "1": hit | {"age_ms": 2}, "2": None, "3": True},
    ]


@pytest.mark.parametrize(
    ("hows", "leave"),
    [
        ([JoinType.SEMI], [True, False, True]),
        ([JoinType.ANTI], [False, True, False]),
        ([JoinType.SEMI, JoinType.ANTI], [False, False, False]),
    ],
)
def test_all_joins_decide_what_leaves(
    question: Question, hows: list[JoinType], leave: list[bool]
) -> None:
    """A record leaves if each join of the pass keeps it."""
    output = AddedOutput([AddedPart(COLUMNS, how) for how in hows])

    built = output.build(Leaving(RECORDS, [question] * len(hows), np.array([0, 1, 3])))

    assert built.column(0).to_pylist() == leave


def cast(values: object, given: pa.DataType, wanted: pa.DataType) -> pa.Array:
    """The values as the wanted type."""
    source, target = pa.schema({"c": given}), pa.schema({"c": wanted})
    rows = pa.record_batch([pa.array(values, given)], source)
    built = column_casts(source, target, dimension="d").apply(rows)
    assert built.schema == target
    return built.column(0)


def element(kind: pa.DataType) -> pa.DataType:
    """A list as Spark declares it."""
    return pa.list_(pa.field("element", kind))


@pytest.mark.parametrize(
    ("values", "given", "wanted"),
    [
        ([1, None], pa.uint32(), pa.int64()),
        (["x", None], pa.large_utf8(), pa.utf8()),
        ([0.5, float("inf"), float("nan"), None], pa.float32(), pa.float64()),
        ([[1, None], None, []], pa.list_(pa.uint32()), element(pa.int64())),
        ([["x"], [], None], pa.list_(pa.utf8()), element(pa.utf8())),
    ],
)
def test_exact_casts_keep_values(
    values: list[object], given: pa.DataType, wanted: pa.DataType
) -> None:
    """Widths and lists change, values, lengths and nulls do not."""
    moment = cast([5000], pa.timestamp("ns", "CET"), pa.timestamp("us", "UTC"))

    assert repr(cast(values, given, wanted).to_pylist()) == repr(values)
    assert moment.cast(pa.int64()).to_pylist() == [5]


def test_inexact_casts_are_refused() -> None:
    """Nanoseconds, for which Spark has no type, are never lost; the column is named."""
    with pytest.raises(InvalidRequest, match=r"column 'c' is .* does not become"):
        cast([None, 5001], pa.timestamp("ns"), pa.timestamp("us"))


def test_other_columns_are_refused() -> None:
    """Other names are refused before the first row."""
    date, text = pa.schema({"c": pa.date32()}), pa.schema({"b": pa.utf8()})

    with pytest.raises(InvalidRequest, match=r"'d' answers with \(c\), not \(b\)"):
        column_casts(date, text, dimension="d")
