"""Comparing the outputs of contenders."""

import pyarrow as pa

from bench.speed import differences

RIGHT = pa.table({"event": [0, 1, 2], "name": ["Ada", None, "Bob"]})


def test_same_rows_in_any_order() -> None:
    """Contenders may give their rows in any order, and in any number of pieces."""
    pieces = pa.concat_tables([RIGHT.slice(2), RIGHT.slice(0, 2)])

    assert differences({"widen": RIGHT, "other": pieces}) == []


def test_wrong_value_is_found() -> None:
    """A single wrong value is told with its event, and so is one that is missing."""
    wrong = pa.table({"event": [0, 1, 2], "name": ["Ada", None, "Eve"]})
    missing = pa.table({"event": [0, 1, 2], "name": [None, None, "Bob"]})

    assert differences({"widen": RIGHT, "wrong": wrong, "missing": missing}) == [
        "wrong is not widen: name of event 2 is Eve, not Bob",
        "missing is not widen: name of event 0 is None, not Ada",
    ]


def test_other_columns_are_found() -> None:
    """Another name or type of a column is a difference, whatever its values are."""
    renamed = RIGHT.rename_columns(["event", "title"])

    assert differences({"widen": RIGHT, "renamed": renamed}) == [
        "renamed is not widen: its columns are {'event': 'int64', 'title': 'string'}"
    ]


def test_lost_rows_are_found() -> None:
    """A contender that loses records is not faster, but wrong."""
    assert differences({"widen": RIGHT, "short": RIGHT.slice(1)}) == [
        "short is not widen: it has 2 rows of 3"
    ]
