"""Output batches: joined columns, structs, and exact casts of the dimension's columns."""

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.compatibility import concat_batches
from lookup_core.errors import InvalidRequest
from lookup_core.operator.records_in_flight import RunRows
from lookup_core.operator.run_answers import RunAnswers
from spark_client.lookup_settings import JoinType
from spark_client.worker.output_columns import (
    AddedOutput,
    AddedPart,
    JoinedOutput,
    Output,
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
def answers() -> RunAnswers:
    """Four records with three keys: a row, a missing one, and a row of nulls."""
    answers = RunAnswers(4, COLUMNS)
    answers.add_keys(np.arange(4), np.array([0, 1, 0, 2]), 3)
    names = pa.record_batch([pa.array(["seven", None])], COLUMNS)
    hit = np.full(2, Outcome.HIT, np.uint8)
    answers.store(Answer(np.array([0, 2], np.int32), hit, np.array([1, 2], np.uint32), names))
    answers.store(rowless_answer(np.array([1], np.int32), Outcome.MISSING))
    return answers


def output(*, status: str | None = None, how: JoinType = JoinType.LEFT) -> JoinedOutput:
    """An output with the dimension's column prefixed."""
    return joined_output(RECORDS.schema, [AddedPart(COLUMNS, how, "c_", status)])


def built(output: Output, run: RunRows) -> pa.RecordBatch:
    """The output as one batch."""
    batches = [*output.batches(run, max_bytes=10_000)]
    return concat_batches([output.empty(), *batches])


def rows_of(answers: RunAnswers, *rows: int) -> RunRows:
    """Some of the records."""
    return RunRows(RECORDS, [answers], np.array(rows, np.intp))


@pytest.mark.parametrize("rows", [[0, 1, 2, 3], [1, 2], [0, 3], []])
def test_columns_stand_next_to_the_records(answers: RunAnswers, rows: list[int]) -> None:
    """All rows, a range of them, or some: each record has the row of its key."""
    found = built(output(), rows_of(answers, *rows))

    assert found.to_pylist() == [ROWS[row] for row in rows]
    assert found.schema == output().schema


def test_empty_output_has_the_same_schema() -> None:
    """An empty batch has the schema of the others."""
    empty, structs = output(status="_s").empty(), StructOutput(COLUMNS).empty()

    assert (empty.num_rows, empty.schema) == (0, output(status="_s").schema)
    assert (structs.num_rows, structs.schema.types) == (0, [pa.struct({"name": pa.utf8()})])


def test_untouched_records_are_not_copied(answers: RunAnswers) -> None:
    """A range of records is a view of the input's memory."""
    found = next(output().batches(rows_of(answers, 1, 2), max_bytes=10_000))

    assert found.column("n").buffers()[1].address == RECORDS.column("n").buffers()[1].address


def test_missing_row_is_a_null_struct(answers: RunAnswers) -> None:
    """A missing row gives NULL; a row of nulls gives a struct of nulls."""
    found = built(StructOutput(COLUMNS), rows_of(answers, 0, 1, 3))

    assert found.column(0).to_pylist() == [{"name": "seven"}, None, {"name": None}]


Lists = list[list[str | None] | None]


def lists_answers(lists: Lists, *, name: str = "name") -> RunAnswers:
    """A answers of the records, each of another key, with the rows in these lists."""
    answers = RunAnswers(len(lists), pa.schema({name: pa.list_(pa.utf8())}))
    answers.add_keys(np.arange(len(lists)), np.arange(len(lists)), len(lists))
    found = np.array([at for at, each in enumerate(lists) if each is not None], np.int32)
    rows = pa.record_batch({name: [each for each in lists if each is not None]})
    hit, ages_ms = np.full(len(found), Outcome.HIT, np.uint8), np.full(len(found), 7, np.uint32)
    for place in range(len(found)):  # in parts
        part = slice(place, place + 1)
        answers.store(Answer(found[part], hit[part], ages_ms[part], rows.slice(place, 1)))
    absent = np.array([at for at, each in enumerate(lists) if each is None], np.int32)
    answers.store(rowless_answer(absent, Outcome.MISSING))
    return answers


def expanding(name: str, how: JoinType = JoinType.LEFT, status: str | None = None) -> AddedPart:
    """A part with a text column that expands."""
    return AddedPart(pa.schema({name: pa.utf8()}), how, "", status, expands=True)


SECOND: Lists = [["x", "y", "z"], ["x"], None, ["x", "y"]]


def test_expanding_part_stands_next_to_others(answers: RunAnswers) -> None:
    """The row of a lookup that does not expand is repeated; any type of the records, too."""
    records = RECORDS.append_column(
        "m", pa.array([[("k", 1)], None, [], [("k", None)]], pa.map_(pa.utf8(), pa.int64()))
    ).append_column("v", pa.nulls(4))
    parts = [AddedPart(COLUMNS, prefix="c_"), expanding("other")]
    run = RunRows(records, [answers, lists_answers(SECOND, name="other")], np.array([0, 3]))

    rows = built(joined_output(records.schema, parts), run).to_pylist()

    assert [(row["m"], row["c_name"], row["other"]) for row in rows] == [
        *([([("k", 1)], "seven", letter) for letter in "xyz"]),
        *([([("k", None)], None, letter) for letter in "xy"]),
    ]


def test_large_multiplied_records_are_cut() -> None:
    """A record's own bytes count for each of its rows, also within one record."""
    records = pa.record_batch({"text": ["x" * 1000, "y"]})
    lists: Lists = [["a"] * 10, ["b"]]
    run = RunRows(records, [lists_answers(lists)], np.array([0, 1]))

    batches = joined_output(records.schema, [expanding("name")]).batches(run, max_bytes=3100)

    assert [batch.num_rows for batch in batches] == [3, 3, 3, 2]


def test_many_rows_are_cut() -> None:
    """A batch has a bounded number of rows, however small they are; none is lost in between."""
    size = 70_000
    lists: Lists = [[str(at) for at in range(size)]]
    run = RunRows(RECORDS.slice(0, 1), [lists_answers(lists)], np.array([0]))
    output = joined_output(RECORDS.schema, [expanding("name")])

    batches = list(output.batches(run, max_bytes=10**9))

    assert [batch.num_rows for batch in batches] == [65_536, size - 65_536]
    assert [name for each in batches for name in each.column("name").to_pylist()] == lists[0]


def test_added_columns_are_fields_of_a_struct(answers: RunAnswers) -> None:
    """All rows stay, in order, and the last field is whether the record leaves."""
    parts = [AddedPart(COLUMNS, JoinType.INNER, "c_", "_s"), AddedPart(COLUMNS, JoinType.LEFT)]
    output = AddedOutput(parts)

    found = built(output, RunRows(RECORDS, [answers, answers], np.array([0, 1, 3])))

    hit = {"outcome": "hit", "age_ms": 1, "error": None}
    missing = {"outcome": "missing", "age_ms": None, "error": None}
    assert found.schema == output.empty().schema
    assert found.column(0).to_pylist() == [
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
    answers: RunAnswers, hows: list[JoinType], leave: list[bool]
) -> None:
    """A record leaves if each join of the pass keeps it."""
    output = AddedOutput([AddedPart(COLUMNS, how) for how in hows])

    found = built(output, RunRows(RECORDS, [answers] * len(hows), np.array([0, 1, 3])))

    assert found.column(0).to_pylist() == leave


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
