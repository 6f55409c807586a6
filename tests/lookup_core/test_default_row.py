"""Default row: values of a configuration in the exact types of a dimension's columns."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from lookup_core.dimension.default_row import default_row
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.type_texts import type_text

COLUMNS = pa.schema(
    {
        "name": pa.utf8(),
        "tier": pa.int16(),
        "is_active": pa.bool_(),
        "balance": pa.decimal128(10, 2),
        "volume": pa.decimal128(38, 18),
        "since": pa.date32(),
        "seen_at": pa.timestamp("us", "UTC"),
        "opened_at": pa.timestamp("us"),
        "score": pa.float64(),
        "ratio": pa.float32(),
        "photo": pa.binary(),
        "tags": pa.list_(pa.utf8()),
        "days": pa.list_(pa.date32()),
        "mark": pa.binary(2),
        "owner": pa.struct({"name": pa.utf8(), "tags": pa.list_(pa.int8())}),
    }
)
CET = dt.timezone(dt.timedelta(hours=1))
EPOCH, EPOCH_UTC = dt.datetime(1970, 1, 1), dt.datetime(1970, 1, 1, tzinfo=dt.UTC)  # noqa: DTZ001


def value(name: str, given: object) -> object:
    """The value of the default row in a column."""
    row = default_row({name: given}, COLUMNS)
    return row[name].to_pylist()[0]


def refusal(values: dict[str, object]) -> str:
    """The error of an invalid default row."""
    with pytest.raises(BackendError) as caught:
        default_row(values, COLUMNS)
    assert caught.value.code is ErrorCode.TABLE_UNAVAILABLE
    return caught.value.detail


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        *(("name", "none", "none"), ("tier", 0, 0), ("tier", "-7", -7), ("tier", None, None)),
        *(("is_active", False, False), ("balance", "0.00", Decimal("0.00"))),
        *(("balance", 7, Decimal("7.00")), ("balance", 1.5, Decimal("1.50"))),
        ("volume", 123456789012345.0, Decimal(123456789012345)),
        ("since", "1970-01-01", EPOCH.date()),
        ("since", EPOCH.date(), EPOCH.date()),
        ("seen_at", "1970-01-01T00:00:00Z", EPOCH_UTC),
        ("seen_at", EPOCH_UTC.astimezone(CET), EPOCH_UTC),
        ("opened_at", "1970-01-01T05:00", EPOCH.replace(hour=5)),
        ("opened_at", EPOCH.date(), EPOCH),
        *(("score", 1, 1.0), ("score", "0.1", 0.1), ("score", float("inf"), float("inf"))),
        *(
            ("ratio", 0.25, 0.25),
            ("ratio", 2.0**-149, 2.0**-149),
            ("photo", "/w==", b"\xff"),
            ("photo", b"\xff", b"\xff"),
        ),
        *(("tags", ["a", "b"], ["a", "b"]), ("tags", [], [])),
        ("days", ["1970-01-01", None], [EPOCH.date(), None]),
        ("owner", {"name": "a"}, {"name": "a", "tags": None}),
        ("owner", {"tags": [1, None]}, {"name": None, "tags": [1, None]}),
    ],
)
def test_values_take_the_exact_type(name: str, given: object, expected: object) -> None:
    """A value that YAML or the environment can write becomes the value of the column."""
    assert value(name, given) == expected


def test_other_columns_are_null() -> None:
    """The default row has all columns; those without a default are null; a float may be NaN."""
    row = default_row({"tier": 3}, COLUMNS)

    assert row.schema == COLUMNS
    assert row.to_pylist() == [dict.fromkeys(COLUMNS.names) | {"tier": 3}]
    assert repr(value("score", float("nan"))) == "nan"


@pytest.mark.parametrize(
    ("name", "unfit", "remedy"),
    [
        ("tier", ["0x1F", " 7", 100_000, 1.0, True, "9" * 40], "write a whole number in its range"),
        ("is_active", [1, "yes"], "write true or false"),
        ("name", [5, b"x", "\ud800", ["x"]], "write a text in quotes"),
        (
            "balance",
            ["1.005", 10**9, True, float("inf"), float("nan"), 1234567890123456.0],
            "write a number with no more digits and decimals, in quotes",
        ),
        (
            "volume",
            [1e15, 0.1234567890123456],
            "write a number with no more digits and decimals, in quotes",
        ),
        ("since", ["tomorrow", 5, EPOCH], "write a date like 2024-05-31"),
        (
            "opened_at",
            [5, EPOCH_UTC.astimezone(CET), "1970-01-01T00:00:00.0000001"],
            "write a time like 2024-05-31T12:00:00",
        ),
        (
            "seen_at",
            [5, "1970-01-01T00:00"],
            "write a time with its zone, like 2024-05-31T12:00:00Z",
        ),
        ("score", ["high", True, [1], 2**53 + 1], "write a number in its range"),
        ("ratio", [1e300, "1e-300", 2**24 + 1, 10**400], "write a number in its range"),
        ("photo", ["/w", 5], "write base64 in quotes"),
        ("tags", ["a", ("a",), [5]], "write a list of values of its type"),
        ("mark", ["ab"], "leave it out"),
        ("owner", ["a", {"nam": "a"}, {"tags": 1}], "write a mapping of its fields"),
    ],
)
def test_unfit_values_are_refused(name: str, unfit: list[object], remedy: str) -> None:
    """No value is rounded or guessed; the error names column, type and remedy, but no value."""
    kind = COLUMNS.field(name).type
    expected = f"default: column {name} is {type_text(kind)}, which cannot hold the value; {remedy}"

    assert [refusal({name: given}) for given in unfit] == [expected] * len(unfit)
    assert refusal({"teir": 1}) == "default: no column teir; did you mean tier?"
