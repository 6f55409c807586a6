"""Debezium's forms of values: rewritten where they say what the table has, else not used."""

from base64 import b64encode
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_core.changelog.debezium_values import plain_json
from lookup_core.changelog.json_column import UNUSABLE, json_column

DECIMAL = pa.decimal128(10, 2)
WHOLE = pa.decimal128(10, 0)
TIMESTAMP = pa.timestamp("us")
ZONED = pa.timestamp("us", "UTC")
MOMENT = datetime(2020, 2, 29, 12, 34, 56, 123456)  # noqa: DTZ001
UNKNOWN = "not usable"


def value_of(value: object, kind: pa.DataType, form: dict[str, Any] | None = None) -> object:
    """What one value becomes in the column's type, given the schema of its field, if any."""
    field = pa.field("column", kind)
    forms = {} if form is None else {"column": form}
    column = json_column(plain_json([value], [forms], field), field)
    return UNKNOWN if column.unusable.size else column.values[0].as_py()


def named(name: str) -> dict[str, Any]:
    """The schema of a field of this kind."""
    return {"type": "int64", "name": f"io.debezium.time.{name}"}


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (None, DECIMAL, None),
        (7, pa.int16(), 7),
        ("text", pa.utf8(), "text"),
        ("NaN", pa.float32(), pytest.approx(float("nan"), nan_ok=True)),
        (18321, pa.date32(), date(2020, 2, 29)),
        (-719162, pa.date32(), date(1, 1, 1)),
        ("2020-02-29Z", pa.date32(), date(2020, 2, 29)),
        ("2020-02-29T12:34:56.123456Z", TIMESTAMP, MOMENT),
        ("2020-02-29T11:34:56.123456Z", ZONED, datetime(2020, 2, 29, 11, 34, 56, 123456, UTC)),
        ("BOI=", DECIMAL, Decimal("12.50")),
        ("/w==", DECIMAL, Decimal("-0.01")),
        ("12.50", DECIMAL, Decimal("12.50")),
        ("-99", WHOLE, Decimal(-99)),
        ("12345", WHOLE, Decimal(12345)),
        ("3q2+7w==", pa.binary(), b"\xde\xad\xbe\xef"),
        ("3q2-7w==", pa.binary(), b"\xde\xad\xbe\xef"),
        ("deadbe", pa.binary(), b"\xde\xad\xbe"),
        ("", pa.binary(), b""),
    ],
)
def test_sure_forms_need_no_schema(value: object, kind: pa.DataType, expected: object) -> None:
    """A value that can be read in one way only is that value."""
    assert value_of(value, kind) == expected


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1582979696123456, TIMESTAMP),  # micro-, milli- or nanoseconds
        ("1234", WHOLE),  # a number, or three bytes in base64
        ("deadbeef", pa.binary()),  # four bytes in hexadecimal, or six in base64
    ],
)
def test_ambiguous_values_are_not_used(value: object, kind: pa.DataType) -> None:
    """A value that could be read in two ways is not used, instead of perhaps a wrong one."""
    assert value_of(value, kind) == UNKNOWN


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (-2147472692, pa.date32()),  # -infinity
        (2932897, pa.date32()),  # the year 10000
        (1.5, pa.date32()),
        ("-5877611-06-21Z", pa.date32()),
        ("2020-02-29+02:00", pa.date32()),
        ("infinity", ZONED),
        ("+12020-01-01T00:00:00.000000Z", ZONED),
        ("2020-02-29T12:34:56", ZONED),
        (12.5, DECIMAL),
        ("12.505", DECIMAL),
        ("NAN", DECIMAL),
        ("", DECIMAL),
        ("A" * 24, DECIMAL),
        ({"scale": 1, "value": "Dw=="}, DECIMAL),
        (7, pa.binary()),
        ("?", pa.binary()),
        ("__debezium_unavailable_value", pa.utf8()),
        ("X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==", pa.binary()),
        ("5f5f646562657a69756d5f756e617661696c61626c655f76616c7565", pa.binary()),
        (UNUSABLE, pa.binary()),
        ([1, 2], pa.utf8()),
    ],
)
def test_other_forms_are_not_used(value: object, kind: pa.DataType) -> None:
    """What PostgreSQL did not send, what no date can be, and other types are not used."""
    assert value_of(value, kind) == UNKNOWN


@pytest.mark.parametrize(
    ("value", "kind", "form", "expected"),
    [
        (1582979696123456, TIMESTAMP, named("MicroTimestamp"), MOMENT),
        (1582979696123, TIMESTAMP, named("Timestamp"), MOMENT.replace(microsecond=123000)),
        (1582979696123456000, TIMESTAMP, named("NanoTimestamp"), MOMENT),
        (1582979696123456001, TIMESTAMP, named("NanoTimestamp"), UNKNOWN),
        (1582979696123, TIMESTAMP, {"name": "org.apache.kafka.connect.data.Timestamp"}, UNKNOWN),
        (-9223372036832400000, TIMESTAMP, named("MicroTimestamp"), UNKNOWN),
        ("1234", WHOLE, {"type": "string"}, Decimal(1234)),
        ("1234", WHOLE, {"type": "bytes", "parameters": {"scale": "0"}}, Decimal(-2658824)),
        ("BOI=", DECIMAL, {"type": "bytes", "parameters": {"scale": "1"}}, Decimal(125)),
        ("BOI=", DECIMAL, {"type": "bytes", "parameters": []}, Decimal("12.50")),
        ("deadbeef", pa.binary(), {"type": "bytes"}, b"\x75\xe6\x9d\x6d\xe7\x9f"),
    ],
)
def test_schema_settles_the_form(
    value: object, kind: pa.DataType, form: dict[str, Any], expected: object
) -> None:
    """The schema in the message says how to read a value; what may have been cut is not used."""
    assert value_of(value, kind, form) == expected


def test_default_may_stand_for_null() -> None:
    """Where a column may be NULL, its default is not used: Connect writes it for NULL as well."""
    form = {"type": "int32", "optional": True, "default": 5}

    assert value_of(5, pa.int32(), form) == UNKNOWN
    assert value_of(6, pa.int32(), form) == 6
    assert value_of(None, pa.int32(), form) is None
    assert value_of(5, pa.int32(), {**form, "optional": False}) == 5


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 6))
def test_numbers_are_their_bytes(number: int, scale: int) -> None:
    """Any number is read back from its bytes, with the scale that the schema says."""
    form = {"type": "bytes", "parameters": {"scale": str(scale)}}
    content = b64encode(number.to_bytes(9, "big", signed=True)).decode()

    value = value_of(content, pa.decimal128(25, scale), form)

    assert value == Decimal(number).scaleb(-scale)
