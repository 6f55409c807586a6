"""Answers that arrive in any order become one result in the order of the request."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.errors import ErrorCode
from service.http.replies.lookup_result import lookup_result

COLUMNS = pa.schema([pa.field("name", pa.utf8(), nullable=False), ("tier", pa.int32())])


def test_answers_are_put_in_order() -> None:
    """Rows, outcomes and ages stand where their keys stood, and the others are null."""
    answers = [
        _hits([3, 0], ["d", "a"]),
        _missing([1]),
        _hits([2], ["c"]),
    ]

    result = lookup_result(answers, 4, COLUMNS)

    assert result.rows.column("name").to_pylist() == ["a", None, "c", "d"]
    assert result.outcomes.tolist() == [Outcome.HIT, Outcome.MISSING, Outcome.HIT, Outcome.HIT]
    assert result.ages_ms.tolist() == [100, 0, 102, 103]
    assert result.has_row.tolist() == [True, False, True, True]


def test_answers_in_order_are_not_copied() -> None:
    """Rows that stand in order already are the answer's own."""
    answer = _hits([0, 1], ["a", "b"])

    result = lookup_result([answer], 2, COLUMNS)

    assert answer.rows is not None
    assert result.rows.column("tier").buffers()[1] == answer.rows.column("tier").buffers()[1]


def test_result_without_rows_has_the_columns() -> None:
    """Nulls of the right types stand for rows that nobody has."""
    result = lookup_result([_missing([0, 1])], 2, COLUMNS)

    assert result.rows.schema.names == ["name", "tier"]
    assert result.rows.to_pylist() == [{"name": None, "tier": None}] * 2


def test_errors_of_all_answers_are_kept() -> None:
    """Each position keeps the code of its own answer."""
    positions = np.array([1], np.int32)
    failed = rowless_answer(positions, Outcome.ERROR, error=ErrorCode.TYPE)
    late = rowless_answer(positions - 1, Outcome.TIMEOUT, error=ErrorCode.TIMEOUT)

    result = lookup_result([failed, late], 2, COLUMNS)

    assert result.errors == {0: ErrorCode.TIMEOUT, 1: ErrorCode.TYPE}


def test_no_keys_give_an_empty_result() -> None:
    """A request without keys has a result without rows."""
    result = lookup_result([], 0, COLUMNS)

    assert (len(result.outcomes), result.rows.num_rows) == (0, 0)


def test_no_columns_give_outcomes_alone() -> None:
    """Who asks for no columns learns which keys exist."""
    answer = _hits([0], ["a"])
    bare = replace(answer, rows=pa.record_batch([], schema=pa.schema([])))

    result = lookup_result([bare], 1, pa.schema([]))

    assert (result.has_row.tolist(), result.rows.num_columns) == ([True], 0)


@given(data=st.data(), size=st.integers(0, 30))
def test_any_division_gives_the_same_result(data: st.DataObject, size: int) -> None:
    """However the keys are divided among answers, each position gets what is its own."""
    order = data.draw(st.permutations(range(size)))
    cuts = sorted(data.draw(st.lists(st.integers(0, size), max_size=4)))
    parts = [order[start:end] for start, end in pairwise([0, *cuts, size])]
    answers = [
        _hits(part, [str(at) for at in part]) if data.draw(st.booleans()) else _missing(part)
        for part in parts
    ]

    result = lookup_result(answers, size, COLUMNS)

    has_row = {
        at: answer.rows is not None for answer in answers for at in answer.positions.tolist()
    }
    names = result.rows.column("name").to_pylist()
    assert names == [str(at) if has_row[at] else None for at in range(size)]
    assert result.has_row.tolist() == [has_row[at] for at in range(size)]


def _hits(positions: list[int], names: list[str]) -> Answer:
    ages = [100 + position for position in positions]
    tiers = pa.array(positions, pa.int32())
    return Answer(
        positions=np.array(positions, np.int32),
        outcomes=np.full(len(positions), Outcome.HIT, np.uint8),
        ages_ms=np.array(ages, np.uint32),
        rows=pa.record_batch([pa.array(names), tiers], schema=COLUMNS),
    )


def _missing(positions: list[int]) -> Answer:
    return rowless_answer(np.array(positions, np.int32), Outcome.MISSING)
