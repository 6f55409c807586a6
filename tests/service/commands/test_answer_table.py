"""Answers as tables."""

from typing import Any

import pytest

from lookup_core.errors import ErrorCode
from service.commands.key_arguments import KeyField
from service.commands.tables import answer_table, failures, outcomes, shown, shown_age

KEY = [KeyField("faa", "string")]


def errors(*codes: str) -> dict[str, Any]:
    """An answer in which each key failed with the code at its place."""
    return {"errors": {str(place): {"code": code} for place, code in enumerate(codes)}}


def test_columns_are_those_of_the_rows() -> None:
    """The first row decides the order; a key without a row leaves its cells empty."""
    answer = {
        "outcomes": ["missing", "hit"],
        "rows": [None, {"name": "Kennedy", "alt": 13}],
        "ages_ms": [0, 5],
    }

    table = answer_table(["a", "b"], answer)

    cells = {str(column.header): [str(cell) for cell in column.cells] for column in table.columns}
    assert cells == {
        "key": ["a", "b"],
        "outcome": ["missing", "hit"],
        "age": ["", "5 ms"],
        "name": ["", "Kennedy"],
        "alt": ["", "13"],
    }


def test_no_rows_leave_no_columns() -> None:
    """An answer without any row is a table of outcomes."""
    table = answer_table(["a"], {"outcomes": ["missing"], "rows": [None], "ages_ms": [0]})

    assert [str(column.header) for column in table.columns] == ["key", "outcome", "age"]


def test_errors_stand_with_the_outcome() -> None:
    """A key that failed tells why; the others are as they were."""
    answer = {"outcomes": ["hit", "error"], "errors": {"1": {"code": "type", "retryable": False}}}

    assert outcomes(answer) == ["hit", "error: type"]


def test_errors_are_explained_once() -> None:
    """Each code is told with its remedy; one of a later version has none that could be told."""
    codes = ["ambiguous", "of_a_later_version", "ambiguous"]

    told = failures(errors(*codes), KEY)

    assert told == ["ambiguous: a key has several rows; set match: first or all, or versions"]
    assert failures({}, KEY) == []


def test_wrong_types_are_told_the_right_one() -> None:
    """Who gave a key of another type learns which one the dimension has."""
    (line,) = failures(errors("type"), [*KEY, KeyField("hour", "int64")])

    assert line == f"type: {ErrorCode.TYPE.meaning}; its key is faa string, hour int64"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("[red]x", "[red]x"),
        ("a\x1b[31m\n\x9b", "a\\x1b[31m\\n\\x9b"),
        (None, "null"),
        (1.5, "1.5"),
        ("\ud800", "\\ud800"),
    ],
)
def test_values_do_not_drive_the_terminal(value: object, text: str) -> None:
    """Markup and control characters in the data are shown, not obeyed."""
    assert shown(value).plain == text


@pytest.mark.parametrize(("age_ms", "text"), [(0, "0 ms"), (999, "999 ms"), (1000, "1.0 s")])
def test_ages_have_units(age_ms: int, text: str) -> None:
    """Short ages are told in milliseconds, long ones in seconds."""
    assert shown_age(age_ms) == text
