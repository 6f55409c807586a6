"""RunAnswers: the distinct keys of a run of rows, the answers so far, and each row's columns."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_core.answer import Answer, Outcome
from lookup_core.errors import ErrorCode, ProtocolViolation
from lookup_core.keys.canonical_keys import rows_with_null
from lookup_core.operator.answered_rows import MAX_JOINED_BYTES
from lookup_core.operator.as_of import NEVER_US, AsOf, VersionPick
from lookup_core.operator.encoded_keys import encoded_keys
from lookup_core.operator.run_answers import RunAnswers, pieces
from tests.lookup_core.hypothesis_runs import few_examples
from tests.lookup_core.operator.operator_answers import COLUMNS, failed, hits, missing, with_rows

ROWS = np.arange(6)


def asked(
    columns: pa.Schema,
    *codes: int,
    as_of: AsOf | None = None,
    max_joined_bytes: int = MAX_JOINED_BYTES,
) -> RunAnswers:
    """A answers of which all rows are asked at once."""
    answers = RunAnswers(len(codes), columns, as_of=as_of, max_joined_bytes=max_joined_bytes)
    assert answers.add_keys(np.arange(len(codes)), np.array(codes), max(codes) + 1) == 0
    return answers


@pytest.fixture
def answers() -> Iterator[RunAnswers]:
    """Six rows that look up four keys."""
    answers = asked(COLUMNS, 0, 1, 2, 1, 3, 0)
    yield answers
    answers.check_invariants()


def ended(answers: RunAnswers, answer: Answer) -> list[int] | None:
    """Which rows an answer ends."""
    rows = answers.store(answer)
    return None if rows is None else np.flatnonzero(rows).tolist()


def columns_at(answers: RunAnswers, *rows: int) -> list[list[object]]:
    """The columns of rows."""
    columns = answers.columns_at(np.array(rows, np.intp))
    assert [column.type for column in columns] == COLUMNS.types
    return [column.to_pylist() for column in columns]


def test_first_answer_to_a_key_counts(answers: RunAnswers) -> None:
    """A later answer to a key changes nothing, neither its row nor its error."""
    answers.store(missing(0))
    late = failed(3, 1)

    found = [ended(answers, answer) for answer in (hits(0, 3), hits(0, 3), late)]

    assert found == [[4], None, [1, 3]]
    assert columns_at(answers, 0, 4) == [[None, "xxx3"], [None, 3]]
    errors = answers.status_at(ROWS[[0, 4, 1]]).field("error").to_pylist()
    assert errors == [None, None, "type"]


def test_giving_up_ends_open_keys(answers: RunAnswers) -> None:
    """Giving up ends the keys without an answer, once; later answers are ignored."""
    answers.store(hits(0))

    rows = answers.give_up(Outcome.TIMEOUT, ErrorCode.TIMEOUT)

    assert rows is not None
    assert np.flatnonzero(rows).tolist() == [1, 2, 3, 4]
    assert answers.give_up(Outcome.TIMEOUT, ErrorCode.TIMEOUT) is None
    assert ended(answers, hits(1, 2, 3)) is None
    assert answers.errors_with(Outcome.TIMEOUT) == [ErrorCode.TIMEOUT]
    assert answers.errors_with(Outcome.ERROR) == []


def test_rows_may_be_asked_in_parts() -> None:
    """Rows that are asked later add their keys; those that never are do not end."""
    answers = RunAnswers(4, COLUMNS)
    first = answers.add_keys(np.array([1, 3]), np.array([0, 0]), 1)
    assert ended(answers, hits(0)) == [1, 3]
    later = answers.add_keys(np.array([0]), np.array([0]), 1)

    assert (first, later) == (0, 1)
    assert ended(answers, with_rows([1], hits(5).rows)) == [0]
    assert answers.give_up(Outcome.TIMEOUT, ErrorCode.TIMEOUT) is None
    assert np.flatnonzero(answers.unanswered_rows()).tolist() == [2]
    assert answers.rows_without_key().tolist() == [2]
    answers.add_keys(np.array([2]), np.array([0]), 1)
    assert ended(answers, answers.without_row(2)) == [2]
    assert answers.rows_without_key().tolist() == []
    assert columns_at(answers, 0, 1, 2) == [["xxxxx5", "0", None], [5, 0, None]]
    assert answers.column_at(ROWS[:2], 1).to_pylist() == [5, 0]
    answers.check_invariants()


def test_status_has_outcome_age_and_error(answers: RunAnswers) -> None:
    """A status has an age only with a row, and an error only after a failure."""
    answers.store(hits(0))
    before = answers.status_at(ROWS[:1]).to_pylist()
    answers.store(missing(1))
    answers.store(failed(2, error=ErrorCode.INVALID_TEXT))
    answers.give_up(Outcome.TIMEOUT, ErrorCode.TIMEOUT)

    found = answers.status_at(ROWS[1:]).to_pylist()

    assert before == [{"outcome": "hit", "age_ms": 7, "error": None}]
    assert [tuple(each.values()) for each in found] == [
        ("missing", None, None),
        ("error", None, "invalid_text"),
        ("missing", None, None),
        ("timeout", None, "timeout"),
        ("hit", 7, None),
    ]
    assert answers.has_row_at(ROWS).tolist() == [True, False, False, False, False, True]


@pytest.mark.parametrize(
    ("max_bytes", "sizes"),
    [(48, [6]), (37, [6]), (36, [5, 1]), (19, [3, 3]), (18, [3, 2, 1]), (1, [1] * 6)],
)
def test_pieces_are_bounded_in_bytes(answers: RunAnswers, max_bytes: int, sizes: list[int]) -> None:
    """Rows are split where their columns exceed the bound; a piece has at least one row."""
    answers.store(hits(0, 3))  # of 5 and 8 bytes
    answers.store(hits(2, 1))  # of 7 and 6; the rows take 5, 6, 7, 6, 8 and 5

    split = pieces([answers], ROWS, max_bytes=max_bytes)

    assert [len(piece) for piece in split] == sizes
    assert np.concatenate(split).tolist() == ROWS.tolist()


@few_examples
@given(
    st.permutations(range(12)),
    st.sets(st.integers(1, 11), max_size=4),
    st.sets(st.integers(0, 11), max_size=6),
    st.lists(st.integers(0, 11), max_size=11),
    st.sampled_from([0, MAX_JOINED_BYTES]),
)
def test_any_partition_into_answers_is_the_same(
    order: list[int], cuts: set[int], gone: set[int], wanted: list[int], max_joined_bytes: int
) -> None:
    """In any order of answers of any size, a row has the columns of its key, else null."""
    answers = asked(COLUMNS, *range(12), max_joined_bytes=max_joined_bytes)
    for keys in np.split(np.array(order), sorted(cuts)):
        answers.store(hits(*(key for key in keys.tolist() if key not in gone)))
        answers.store(missing(*(key for key in keys.tolist() if key in gone)))
        answers.check_invariants()

    sizes = [None if key in gone else key for key in wanted]
    assert columns_at(answers, *wanted)[1] == sizes
    assert answers.column_at(np.array(wanted, np.intp), 1).to_pylist() == sizes


TIMES_US = np.array([5, 15, 15, 0, 99, NEVER_US])
NAME = pa.schema({"name": pa.utf8()})
LISTS = pa.schema({"name": pa.list_(pa.utf8()), "since": pa.list_(pa.timestamp("us"))})


@pytest.fixture
def timed() -> RunAnswers:
    """Six rows that look up three keys, each as of a time."""
    as_of = AsOf(TIMES_US, VersionPick(NAME, 1, None))
    return asked(NAME, 0, 0, 1, 1, 2, 0, as_of=as_of)


def versions(*keys: int) -> Answer:
    """An answer with two versions of each key, from 1 and from 10 on."""
    names = [[f"old {key}", f"new {key}"] for key in keys]
    columns = [pa.array(names), pa.array([[1, 10]] * len(keys), LISTS.types[1])]
    return with_rows([*keys], pa.record_batch(columns, schema=LISTS))


def test_each_row_has_version_of_its_time(timed: RunAnswers) -> None:
    """Rows of one key get the version of their time, in any order of answers."""
    assert ended(timed, versions(2, 0)) == [0, 1, 4, 5]
    assert ended(timed, versions(1, 0)) == [2, 3]

    assert (timed.latest_ms, asked(NAME, 0).latest_ms) == (0, None)  # 99 microseconds
    (names,) = timed.columns_at(ROWS)
    assert names.to_pylist() == ["old 0", "new 0", "new 1", None, "new 2", None]
    assert timed.columns_at(ROWS[[4, 1]])[0].to_pylist() == ["new 2", "new 0"]
    assert [len(piece) for piece in pieces([timed], ROWS, max_bytes=12)] == [2, 4]


def test_row_without_version_is_missing(timed: RunAnswers) -> None:
    """A row whose key has no version at its time is missing; failures stay failures."""
    timed.store(versions(0, 1))
    timed.store(failed(2))

    status = [tuple(each.values()) for each in timed.status_at(ROWS).to_pylist()]

    gone, error = ("missing", None, None), ("error", None, "type")
    assert status == [*[("hit", 7, None)] * 3, gone, error, gone]
    assert timed.has_row_at(ROWS).tolist() == [True, True, True, False, False, False]


def test_malformed_versions_change_nothing(timed: RunAnswers) -> None:
    """An answer with unequal lists is refused before any of it counts."""
    answer = versions(0)
    assert answer.rows is not None
    malformed = answer.rows.set_column(0, "name", pa.array([["one"]]))

    with pytest.raises(ProtocolViolation, match="different lengths"):
        timed.store(replace(answer, rows=malformed))

    assert timed.open_keys == 3
    assert ended(timed, answer) == [0, 1, 5]


texts = st.none() | st.text(max_size=3)
records = st.lists(st.tuples(texts, st.none() | st.integers(0, 2), texts), max_size=40)


@few_examples
@given(records)
def test_keys_are_distinct_and_in_order(
    rows: list[tuple[str | None, int | None, str | None]],
) -> None:
    """Each distinct key is there once, in order of first occurrence; NULL is a value."""
    schema = pa.schema({"a": pa.utf8(), "b": pa.int64(), "c": pa.utf8()})
    columns = [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(schema.types)]

    encoded = encoded_keys(columns, schema)
    single = encoded_keys([columns[0].slice(1)], pa.schema({"a": pa.utf8()}))

    keys = list(zip(*(column.to_pylist() for column in encoded.keys.columns), strict=True))
    assert keys == list(dict.fromkeys(rows))
    assert [keys[code] for code in encoded.key_of_row] == rows
    has_null = [None in row for row in rows]
    found = rows_with_null(columns)
    assert (None if found is None else found.tolist()) == (has_null if any(has_null) else None)
    assert single.keys.column(0).to_pylist() == list(dict.fromkeys(row[0] for row in rows[1:]))
    assert single.keys.column(0).take(pa.array(single.key_of_row)) == columns[0].slice(1)


RANDOM = np.random.default_rng(7)


@pytest.mark.parametrize(
    "numbers",
    [
        RANDOM.integers(-1_000, 1_000, 4_095),
        RANDOM.integers(-1_000, 1_000, 4_096),
        np.tile(RANDOM.integers(-(2**63), 2**63 - 1, 3_000), 2),
        *(np.tile(np.arange(2_100) * np.int64(stride), 2) for stride in (1, 2**20, 3 * 2**50)),
    ],
    ids=["few", "many", "far", "stride 1", "stride 2**20", "stride 3 * 2**50"],
)
def test_many_numbers_are_encoded_alike(numbers: npt.NDArray[np.int64]) -> None:
    """Thousands of numbers, regular or random, are encoded like a few keys."""
    encoded = encoded_keys([pa.array(numbers)], pa.schema({"id": pa.int64()}))

    distinct = list(dict.fromkeys(numbers.tolist()))
    assert encoded.keys.column("id").to_pylist() == distinct
    assert np.array(distinct)[encoded.key_of_row].tolist() == numbers.tolist()


def test_distinct_keys_in_order_are_not_copied() -> None:
    """If row i is that of key i, the columns are those of the answer, in one piece."""
    answers = asked(COLUMNS, 0, 1, 2)
    answer = hits(0, 1, 2)
    answers.store(answer)

    rows = np.arange(3)
    assert answer.rows is not None
    assert answers.columns_at(rows)[0].buffers()[2].address == (
        answer.rows.column(0).buffers()[2].address
    )
    assert [len(piece) for piece in pieces([answers], rows, max_bytes=answer.rows.nbytes)] == [3]
    assert columns_at(answers, 2, 0) == [["xx2", "0"], [2, 0]]
