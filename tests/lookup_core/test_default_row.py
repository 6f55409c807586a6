"""The default row: values of a configuration in the exact types of a dimension's columns."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from lookup_core.default_row import default_row
from lookup_core.errors import BackendError, ErrorCode

COLUMNS = pa.schema(
    {
        "name": pa.utf8(),
        "tier": pa.int16(),
        "is_active": pa.bool_(),
        "balance": pa.decimal128(10, 2),
        "since": pa.date32(),
        "seen_at": pa.timestamp("us", "UTC"),
        "score": pa.float64(),
        "tags": pa.list_(pa.utf8()),
    }
)


def value(name: str, given: object) -> object:
    """What the default row holds in a column."""
    row = default_row({name: given}, COLUMNS)
    return row[name].to_pylist()[0]


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("name", "nobody", "nobody"),
        ("tier", 0, 0),
        ("is_active", False, False),
        ("balance", "0.00", Decimal("0.00")),
        ("balance", 7, Decimal("7.00")),
        ("balance", 1.5, Decimal("1.50")),
        ("since", "1970-01-01", dt.date(1970, 1, 1)),
        ("since", dt.date(1970, 1, 1), dt.date(1970, 1, 1)),
        ("seen_at", "1970-01-01T00:00:00Z", dt.datetime(1970, 1, 1, tzinfo=dt.UTC)),
        ("score", 1, 1.0),
        ("tags", ["a", "b"], ["a", "b"]),
        ("tags", [], []),
        ("tier", None, None),
    ],
)
def test_values_take_the_exact_type(name: str, given: object, expected: object) -> None:
    """What YAML can write becomes the value that the column holds."""
    assert value(name, given) == expected


def test_other_columns_are_null() -> None:
    """There is one row with all columns; those without a default are null."""
    row = default_row({"tier": 3}, COLUMNS)

    assert row.schema == COLUMNS
    assert row.to_pylist() == [dict.fromkeys(COLUMNS.names) | {"tier": 3}]


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("tier", "seven"),
        ("tier", 100_000),
        ("tier", 1.5),
        ("tier", True),
        ("is_active", 1),
        ("is_active", "yes"),
        ("name", 5),
        ("balance", "1.005"),
        ("since", "tomorrow"),
        ("tags", "a"),
    ],
)
def test_unfit_values_are_refused(name: str, given: object) -> None:
    """Nothing is rounded, cut or guessed; the message names the column and its type."""
    with pytest.raises(BackendError) as caught:
        default_row({name: given}, COLUMNS)

    assert caught.value.code is ErrorCode.TABLE_UNAVAILABLE
    expected = f"default: column {name} is {COLUMNS.field(name).type}, which {given!r} is not"
    assert caught.value.detail == expected


def test_unknown_columns_are_refused() -> None:
    """A column that there is not is named, with the nearest one."""
    with pytest.raises(BackendError) as caught:
        default_row({"teir": 1}, COLUMNS)

    assert caught.value.detail == "default: no column teir; did you mean tier?"
