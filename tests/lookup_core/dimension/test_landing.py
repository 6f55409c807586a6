"""Who gets what when a query's keys land: every waiter its own rows, mapped by ordinal."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_core.answer import Answer, Outcome
from lookup_core.dimension.query_results import NO_ROW, SEVERAL_ROWS, QueryResult
from lookup_core.errors import ErrorCode

ROWS = pa.record_batch({"name": ["Ada", "Bert", "Cora"], "tier": [1, 2, 3]})


def numbers(*values: int) -> npt.NDArray[np.int32]:
    """Positions or ordinals."""
    return np.array(values, np.int32)


def landing_of(
    key_count: int, ordinals: npt.NDArray[np.int32], rows: pa.RecordBatch
) -> QueryResult:
    """Rows that were read 30 ms ago."""
    return QueryResult.of_rows(key_count, ordinals, rows=rows, age_ms=30)


def plain(answers: Iterable[Answer]) -> list[tuple[list[int], set[int], object, object]]:
    """Answers as values: positions, outcomes, rows, errors."""
    return [
        (
            answer.positions.tolist(),
            set(answer.outcomes.tolist()),
            None if answer.rows is None else answer.rows.to_pydict(),
            answer.errors,
        )
        for answer in answers
    ]


def test_rows_belong_to_their_ordinals() -> None:
    """A key has the row that came with its ordinal, in whatever order the rows come."""
    landing = landing_of(4, numbers(3, 0, 1), ROWS)

    assert landing.row_of.tolist() == [1, 2, NO_ROW, 0]


def test_keys_with_several_rows_are_marked() -> None:
    """A key with two rows has neither of them; the others are not affected."""
    landing = landing_of(3, numbers(2, 0, 2), ROWS)

    assert landing.row_of.tolist() == [1, NO_ROW, SEVERAL_ROWS]


def test_no_rows_are_only_absences() -> None:
    """A query may find nothing at all."""
    landing = landing_of(2, numbers(), ROWS.slice(0, 0))

    assert landing.row_of.tolist() == [NO_ROW, NO_ROW]


def test_one_answer_for_each_kind() -> None:
    """A lookup gets its rows, its absences and its ambiguous keys, each in one answer."""
    landing = landing_of(4, numbers(0, 2, 2), ROWS)

    answers = landing.answers(numbers(7, 8, 9, 5), numbers(2, 0, 1, 3), ["name"])

    assert plain(answers) == [
        ([8], {Outcome.FETCHED}, {"name": ["Ada"]}, {}),
        ([9, 5], {Outcome.MISSING}, None, {}),
        ([7], {Outcome.ERROR}, None, {7: ErrorCode.AMBIGUOUS}),
    ]


def test_answer_has_the_columns_asked_for() -> None:
    """Each lookup gets its own columns, in its own order."""
    landing = landing_of(2, numbers(0, 1), ROWS.slice(0, 2))

    (answer,) = landing.answers(numbers(0, 1, 2), numbers(1, 0, 1), ["tier", "name"])

    assert answer.rows is not None
    assert list(answer.rows.to_pydict().items()) == [
        ("tier", [2, 1, 2]),
        ("name", ["Bert", "Ada", "Bert"]),
    ]
    assert answer.ages_ms.tolist() == [30, 30, 30]


def test_no_keys_get_no_answer() -> None:
    """Where nobody waits there is nothing to say."""
    landing = landing_of(1, numbers(0), ROWS.slice(0, 1))

    assert plain(landing.answers(numbers(), numbers(), ["name"])) == []


def test_absence_has_an_age() -> None:
    """That there was no row is as old as the question."""
    (answer,) = landing_of(1, numbers(), ROWS.slice(0, 0)).answers(numbers(4), numbers(0), [])

    assert (answer.outcomes.tolist(), answer.ages_ms.tolist()) == ([Outcome.MISSING], [30])


@pytest.mark.parametrize(
    ("is_last_try", "known"), [(False, [True, False, False]), (True, [True, True, False])]
)
def test_absence_is_known_from_the_last_try(is_last_try: bool, known: list[bool]) -> None:  # noqa: FBT001  a parameter of the test
    """A row is known at once, an absence when no try is left, and an ambiguous key never."""
    landing = landing_of(3, numbers(0, 2, 2), ROWS)

    assert landing.is_known(is_last_try=is_last_try).tolist() == known


@given(
    ordinals=st.lists(st.integers(0, 5), max_size=8), asked=st.lists(st.integers(0, 5), max_size=8)
)
def test_every_position_is_answered_once(ordinals: list[int], asked: list[int]) -> None:
    """Whatever a backend brings, each position gets one outcome, and the row of its own key."""
    rows = pa.record_batch({"owner": pa.array(ordinals, pa.int64())})
    landing = landing_of(6, numbers(*ordinals), rows)

    answers = list(
        landing.answers(np.arange(len(asked), dtype=np.int32), numbers(*asked), ["owner"])
    )

    found: dict[int, object] = {}
    for answer in answers:
        owners = [None] * answer.size if answer.rows is None else answer.rows["owner"].to_pylist()
        pairs = zip(answer.outcomes.tolist(), owners, strict=True)
        found |= dict(zip(answer.positions.tolist(), pairs, strict=True))
    assert sum(answer.size for answer in answers) == len(asked)
    assert found == {at: _expected(ordinals, key) for at, key in enumerate(asked)}


def _expected(ordinals: list[int], key: int) -> tuple[Outcome, int | None]:
    outcomes = (Outcome.MISSING, Outcome.FETCHED)
    count = ordinals.count(key)
    return (Outcome.ERROR, None) if count > 1 else (outcomes[count], key if count else None)
