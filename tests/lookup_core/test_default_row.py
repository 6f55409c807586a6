"""The default row: values of a configuration in the exact types of a dimension's columns."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given as given_any
from hypothesis import strategies as st

from lookup_core.dimension.default_row import default_row
from lookup_core.errors import BackendError, ErrorCode

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
    }
)
CET = dt.timezone(dt.timedelta(hours=1))


def value(name: str, given: object) -> object:
    """What the default row holds in a column."""
    row = default_row({name: given}, COLUMNS)
    return row[name].to_pylist()[0]


def refusal(values: dict[str, object], columns: pa.Schema) -> str:
    """Why there is no such default row."""
    with pytest.raises(BackendError) as caught:
        default_row(values, columns)
    assert caught.value.code is ErrorCode.TABLE_UNAVAILABLE
    return caught.value.detail


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("name", "nobody", "nobody"),
        ("tier", 0, 0),
        ("is_active", False, False),
        ("balance", "0.00", Decimal("0.00")),
        ("balance", 7, Decimal("7.00")),
        ("balance", 1.5, Decimal("1.50")),
        ("volume", 123456789012345.0, Decimal(123456789012345)),
        ("since", "1970-01-01", dt.date(1970, 1, 1)),
        ("since", dt.date(1970, 1, 1), dt.date(1970, 1, 1)),
        ("seen_at", "1970-01-01T00:00:00Z", dt.datetime(1970, 1, 1, tzinfo=dt.UTC)),
        ("seen_at", dt.datetime(1970, 1, 1, 1, tzinfo=CET), dt.datetime(1970, 1, 1, tzinfo=dt.UTC)),
        ("opened_at", "1970-01-01T05:00", dt.datetime(1970, 1, 1, 5)),  # noqa: DTZ001
        ("opened_at", dt.date(1970, 1, 1), dt.datetime(1970, 1, 1)),  # noqa: DTZ001
        ("score", 1, 1.0),
        ("score", "0.1", 0.1),
        ("score", float("inf"), float("inf")),
        ("ratio", 0.25, 0.25),
        ("photo", "/w==", b"\xff"),
        ("photo", b"\xff", b"\xff"),
        ("tier", "-7", -7),
        ("tags", ["a", "b"], ["a", "b"]),
        ("tags", [], []),
        ("days", ["1970-01-01", None], [dt.date(1970, 1, 1), None]),
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


def test_float_without_a_number_is_kept() -> None:
    """A column of floats may have NaN by default."""
    assert repr(value("score", float("nan"))) == "nan"


@pytest.mark.parametrize(
    ("name", "unfit", "remedy"),
    [
        (
            "tier",
            ["seven", "0x1F", " 7", 100_000, 1.0, True, 16**5000],
            "a whole number in its range",
        ),
        ("is_active", [1, "yes", "true"], "true or false"),
        ("name", [5, True, b"x", "\ud800", ["x"], {"x": 1}], "a text in quotes"),
        (
            "balance",
            ["1.005", "1e-9999999", "nan", 10**9, True, 1234567890123456.0, 0.1234567890123456],
            "a number of its digits, in quotes",
        ),
        ("balance", [float("inf"), float("nan")], "a number of its digits, in quotes"),
        ("volume", [1e16, 0.1234567890123456], "a number of its digits, in quotes"),
        ("since", ["tomorrow", 5, dt.datetime(1970, 1, 1)], "a date like 2024-05-31"),  # noqa: DTZ001
        ("opened_at", [5, dt.datetime(1970, 1, 1, tzinfo=CET)], "a time like 2024-05-31T12:00:00"),
        ("opened_at", ["1970-01-01T00:00:00.0000001"], "a time like 2024-05-31T12:00:00"),
        ("seen_at", [5, "1970-01-01T00:00"], "a time with its zone, like 2024-05-31T12:00:00Z"),
        ("score", ["high", True, [1], 2**53 + 1], "a number in its range"),
        ("ratio", [1e300, "1e-300", 2**24 + 1, 10**400], "a number in its range"),
        ("photo", ["/w", 5], "base64 in quotes"),
        ("tags", ["a", ("a",), [5]], "a list of values of its type"),
    ],
)
def test_unfit_values_are_refused(name: str, unfit: list[object], remedy: str) -> None:
    """Nothing is rounded, cut or guessed; the message names column, type and remedy, no value."""
    kind = COLUMNS.field(name).type
    expected = f"default: column {name} is {kind}, and the value is not; write {remedy}"

    assert [refusal({name: given}, COLUMNS) for given in unfit] == [expected] * len(unfit)


def test_type_that_cannot_be_written_is_refused() -> None:
    """A column whose values have no form in a configuration can only be left out."""
    columns = pa.schema({"id": pa.binary(2)})

    assert refusal({"id": "ab"}, columns) == (
        "default: column id is fixed_size_binary[2], and the value is not; leave it out"
    )


@given_any(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_floats_of_the_type_are_kept(number: float) -> None:
    """A number that the column's type can hold is the default row's, to the last bit."""
    assert value("ratio", number) == number


@given_any(st.decimals(-99_999_999, 99_999_999, places=2))
def test_decimals_are_kept_as_written(number: Decimal) -> None:
    """A decimal is the same whether it is written as a text or as a number."""
    assert value("balance", str(number)) == value("balance", float(number)) == number


def test_unknown_columns_are_refused() -> None:
    """A column that there is not is named, with the nearest one."""
    assert refusal({"teir": 1}, COLUMNS) == "default: no column teir; did you mean tier?"
