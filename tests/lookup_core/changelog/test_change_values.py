"""Values in change messages: used if they are exactly those of the table, else not at all."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lookup_core.changelog.debezium_values import plain_json
from lookup_core.changelog.json_column import UNUSABLE, json_column
from lookup_core.changelog.notification import NotificationDecoder
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.keys.typed_keys import UUID_FIELD
from tests.lookup_core.changelog.change_messages import listed, schema_of

DECIMAL, WHOLE = pa.decimal128(10, 2), pa.decimal128(10, 0)
TIMESTAMP, ZONED = pa.timestamp("us"), pa.timestamp("us", "UTC")
UUID = pa.field("id", pa.binary(16), metadata=UUID_FIELD)
MOMENT = datetime(2020, 2, 29, 12, 34, 56, 123456)  # noqa: DTZ001
NOON = datetime(2020, 2, 29, 12, 34, 56, 100_000)  # noqa: DTZ001


@dataclass(frozen=True, slots=True)
class JsonNumber:
    """A number with all of its digits."""

    text: str


EXACT = JsonNumber("123456789012345678.89")
HALFWAY = 1 + 2**-24  # between two floats of 32 bits
UNKNOWN = "not usable"


def taken(values: Sequence[object], kind: pa.DataType) -> tuple[list[Any], list[int]]:
    """The values in the column's type, and the positions of those that are unusable."""
    column = json_column(values, pa.field("column", kind))
    assert column.values.type == kind
    return column.values.to_pylist(), column.unusable.tolist()


def debezium_value(value: object, kind: pa.DataType, form: dict[str, Any] | None = None) -> object:
    """A value of Debezium in the column's type, given the schema of its field."""
    field = pa.field("column", kind)
    forms = {} if form is None else {"column": form}
    column = json_column(plain_json([value], [forms], field), field)
    return UNKNOWN if column.unusable.size else column.values[0].as_py()


def notified_value(value: object, field: pa.Field) -> object:
    """A key of a notification, in the type of this field."""
    schema = DimensionSchema(pa.schema([field]), pa.schema({"name": pa.utf8()}))
    number = value.text if isinstance(value, JsonNumber) else json.dumps(value)
    payload = f'{{"v": 1, "x": "5", "k": [[{number}]]}}'
    ((key, *_),) = listed(NotificationDecoder(schema, loads=orjson.loads).decode([payload]).changes)
    return UNKNOWN if key == "table" else key[0]


def named(name: str) -> dict[str, Any]:
    """The schema of a field of this kind."""
    return {"type": "int64", "name": f"io.debezium.time.{name}"}


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        *((pa.int16(), 1, wrong) for wrong in (1.0, True, "1", 2**15, 2**70, UNUSABLE, {})),
        *((pa.bool_(), True, wrong) for wrong in (1, "true", UNUSABLE)),
        *((pa.utf8(), "a", wrong) for wrong in (1, True, "\ud800", UNUSABLE, ["a"])),
        *((pa.float64(), 0.5, wrong) for wrong in (True, "1", "nan", 10**400, UNUSABLE)),
        *((pa.float32(), 0.5, wrong) for wrong in (3.5e38, -1e300, HALFWAY, 1e-50)),
    ],
)
def test_wrong_value_spoils_no_other(kind: pa.DataType, right: object, wrong: object) -> None:
    """A value that is not exactly of the type is unusable; its neighbours are used."""
    assert taken([right, wrong, None, right], kind) == ([right, None, None, right], [1])


def test_inexact_types_have_no_values() -> None:
    """A type that JSON cannot state exactly has no usable value."""
    assert taken([5, None], pa.duration("s")) == ([None, None], [0, 1])


LINE = pa.struct({"sku": pa.utf8(), "prices": pa.list_(pa.decimal128(5, 2))})


@pytest.mark.parametrize(
    ("kind", "given", "expected", "unusable"),
    [
        (pa.list_(pa.int8()), [[1, None], None, []], [[1, None], None, []], []),
        (
            pa.list_(pa.int8()),
            [[1], ["1"], 5, [2, 300], [3]],
            [[1], None, None, None, [3]],
            [1, 2, 3],
        ),
        (pa.list_(LINE), [[{"sku": "a"}, None]], [[{"sku": "a", "prices": None}, None]], []),
        (LINE, [], [], []),
        (LINE, [None, {}, {"more": 1}], [None, *[{"sku": None, "prices": None}] * 2], []),
        (LINE, [[], "a", {"sku": 1}, {"prices": ["1.005"]}], [None] * 4, [0, 1, 2, 3]),
        (
            LINE,
            [{"sku": "a", "prices": [Decimal("1.1"), 2, "3"]}],
            [{"sku": "a", "prices": [Decimal("1.10"), Decimal("2.00"), Decimal("3.00")]}],
            [],
        ),
        (pa.float64(), [Decimal("0.1")], [0.1], []),
    ],
)
def test_nested_values_fit_wholly(
    kind: pa.DataType, given: list[object], expected: list[object], unusable: list[int]
) -> None:
    """A list or struct is usable if all values in it are; missing members are null."""
    assert taken(given, kind) == (expected, unusable)


def test_special_floats_are_texts() -> None:
    """NaN and infinite numbers are texts, in each width; zero keeps its sign."""
    values, unusable = taken(["NaN", "Infinity", "-Infinity", 2**53], pa.float64())
    zeros = [taken([-0.0, 0.0, 0], kind)[0] for kind in (pa.float32(), pa.float64())]

    assert (values[1:], unusable) == ([math.inf, -math.inf, 2.0**53], [])
    assert math.isnan(values[0])
    assert taken(["Infinity", "-Infinity"], pa.float32()) == ([math.inf, -math.inf], [])
    assert [[math.copysign(1, zero) for zero in found] for found in zeros] == [[-1, 1, 1]] * 2


@settings(max_examples=50)
@given(st.lists(st.floats(width=32, allow_nan=False) | st.none()))
def test_shortest_text_is_its_float(values: list[float | None]) -> None:
    """A float of 32 bits is the same after its shortest text."""
    texts = [None if value is None else float(f"{value:.9g}") for value in values]

    found, unusable = taken(texts, pa.float32())

    assert found == [None if at in unusable else value for at, value in enumerate(values)]


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ("text", pa.utf8(), "text"),
        ("NaN", pa.float32(), pytest.approx(float("nan"), nan_ok=True)),
        (18321, pa.date32(), date(2020, 2, 29)),
        (-719162, pa.date32(), date(1, 1, 1)),
        ("2020-02-29Z", pa.date32(), date(2020, 2, 29)),
        ("2020-02-29T12:34:56.123456Z", TIMESTAMP, MOMENT),
        ("2020-02-29T11:34:56.123456Z", ZONED, MOMENT.replace(hour=11, tzinfo=UTC)),
        ("BOI=", DECIMAL, Decimal("12.50")),
        ("/w==", DECIMAL, Decimal("-0.01")),
        ("12.50", DECIMAL, Decimal("12.50")),
        ("12345678", WHOLE, Decimal(12345678)),  # the precision refutes base64
        (12.5, DECIMAL, Decimal("12.50")),
        ({"scale": 1, "value": "Dw=="}, DECIMAL, Decimal("1.50")),
        (1582979696123456, TIMESTAMP, MOMENT),  # milliseconds would be beyond the calendar
        ("3q2+7w==", pa.binary(), b"\xde\xad\xbe\xef"),
        ("deadbe", pa.binary(), b"\xde\xad\xbe"),
        ("", pa.binary(), b""),
        # Values with two readings: a unit of time, and base64 or digits.
        (1582979696123000, TIMESTAMP, UNKNOWN),
        (1582979696123, TIMESTAMP, UNKNOWN),  # may be truncated
        ("1234", WHOLE, UNKNOWN),
        ("deadbeef", pa.binary(), UNKNOWN),
        # Infinite moments may be in another unit: of 64 bits, in milli- or microseconds.
        (9223372036825200000, TIMESTAMP, UNKNOWN),
        (9223372036825200, TIMESTAMP, UNKNOWN),
        (253402300800000000, TIMESTAMP, UNKNOWN),  # the year 10000
        # Values that the column has as null.
        (-2147472692, pa.date32(), None),  # -infinity
        (2932897, pa.date32(), None),  # the year 10000
        ("-5877611-06-21Z", pa.date32(), None),
        ("infinity", ZONED, None),
        (9223372036854775807, TIMESTAMP, None),
        ("NAN", DECIMAL, None),
        ("POSITIVE_INFINITY", DECIMAL, None),
        # Values that are no value of the type.
        (1.5, pa.date32(), UNKNOWN),
        ("2020-02-29+02:00", pa.date32(), UNKNOWN),
        ("2020-02-29T12:34:56", ZONED, UNKNOWN),
        (1234567890123.25, pa.decimal128(16, 3), UNKNOWN),  # a double has fewer digits
        (12.5, pa.decimal128(16, 2), Decimal("12.5")),
        ("0E-2", DECIMAL, Decimal("0.00")),
        ("1E+2", DECIMAL, UNKNOWN),  # maybe base64
        (12.505, DECIMAL, UNKNOWN),
        ("", DECIMAL, UNKNOWN),
        ("A" * 23 + "=", DECIMAL, UNKNOWN),  # 17 bytes
        ({"scale": 3, "value": "Dw=="}, DECIMAL, UNKNOWN),
        ({"scale": 1}, DECIMAL, UNKNOWN),
        (7, pa.binary(), UNKNOWN),
        ("?", pa.binary(), UNKNOWN),
        (UNUSABLE, pa.binary(), UNKNOWN),
        ([1, 2], pa.utf8(), UNKNOWN),
        # Placeholders for large values that did not change.
        ("__debezium_unavailable_value", pa.utf8(), UNKNOWN),
        ("X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==", pa.binary(), UNKNOWN),
        ("5f5f646562657a69756d5f756e617661696c61626c655f76616c7565", pa.binary(), UNKNOWN),
    ],
)
def test_debezium_values_need_one_reading(
    value: object, kind: pa.DataType, expected: object
) -> None:
    """A value of Debezium without schema is used if it can be read in one way only."""
    assert debezium_value(value, kind) == expected


@pytest.mark.parametrize(
    ("value", "kind", "form", "expected"),
    [
        (1582979696123456, TIMESTAMP, named("MicroTimestamp"), MOMENT),
        (1582979696123, TIMESTAMP, named("Timestamp"), MOMENT.replace(microsecond=123000)),
        (1582979696123456000, TIMESTAMP, named("NanoTimestamp"), MOMENT),
        (1582979696123456001, TIMESTAMP, named("NanoTimestamp"), UNKNOWN),
        (1582979696123, TIMESTAMP, {"name": "org.apache.kafka.connect.data.Timestamp"}, UNKNOWN),
        (-9223372036832400000, TIMESTAMP, named("MicroTimestamp"), None),
        ("1234", WHOLE, {"type": "string"}, Decimal(1234)),
        ("1234", WHOLE, {"type": "bytes", "parameters": {"scale": "0"}}, Decimal(-2658824)),
        ("BOI=", DECIMAL, {"type": "bytes", "parameters": {"scale": "1"}}, Decimal(125)),
        ("BOI=", DECIMAL, {"type": "bytes", "parameters": []}, Decimal("12.50")),
        ("deadbeef", pa.binary(), {"type": "bytes"}, b"\x75\xe6\x9d\x6d\xe7\x9f"),
        # Kafka Connect writes the default of a column for NULL, too.
        (5, pa.int32(), {"type": "int32", "optional": True, "default": 5}, UNKNOWN),
        (6, pa.int32(), {"type": "int32", "optional": True, "default": 5}, 6),
        (None, pa.int32(), {"type": "int32", "optional": True, "default": 5}, None),
        (5, pa.int32(), {"type": "int32", "optional": False, "default": 5}, 5),
    ],
)
def test_schema_selects_the_reading(
    value: object, kind: pa.DataType, form: dict[str, Any], expected: object
) -> None:
    """The schema in a message states how a value is read; a truncated value is not used."""
    assert debezium_value(value, kind, form) == expected


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        *((each, DECIMAL) for each in ("NaN", "Infinity", "-Infinity", None)),
        *((each, pa.date32()) for each in ("infinity", "-infinity", "10000-01-01")),
        ("0044-03-15T00:00:00 BC", TIMESTAMP),
        ("infinity", ZONED),
    ],
)
def test_keys_without_lookups_change_nothing(value: str | None, kind: pa.DataType) -> None:
    """A key that no lookup can have is no change."""
    schema = schema_of({"id": kind}, {"name": pa.utf8()})
    payload = json.dumps({"v": 1, "x": "5", "k": [[value]]})

    found = NotificationDecoder(schema, loads=orjson.loads).decode([payload])

    assert (listed(found.changes), found.faults, found.hints) == ([], {}, {})


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        (pa.field("id", pa.bool_()), True, True),
        (pa.field("id", pa.utf8()), 'é"\\', 'é"\\'),
        (UUID, "30313233-3435-3637-3839-616263646566", b"0123456789abcdef"),
        (pa.field("id", pa.binary()), "\\xdeadbeef", b"\xde\xad\xbe\xef"),
        (pa.field("id", pa.binary()), "\\x", b""),
        (pa.field("id", pa.date32()), "2020-02-29", date(2020, 2, 29)),
        (pa.field("id", TIMESTAMP), "2020-02-29T12:34:56.1", NOON),
        (pa.field("id", ZONED), "2020-02-29T13:34:56.1+01:00", NOON.replace(tzinfo=UTC)),
        (pa.field("id", DECIMAL), 12.5, Decimal("12.50")),
        (pa.field("id", DECIMAL), 12, Decimal("12.00")),
        (pa.field("id", pa.decimal128(15, 2)), 12.5, Decimal("12.50")),
        (pa.field("id", pa.decimal128(20, 2)), "12.50", Decimal("12.50")),
        # Of a domain over numeric, with more digits than a double has.
        (pa.field("id", pa.decimal128(20, 2)), EXACT, Decimal(EXACT.text)),
        (pa.field("id", pa.decimal128(20, 0)), 10**19 + 1, Decimal(10**19 + 1)),
        (pa.field("id", DECIMAL), 12.505, UNKNOWN),
        (pa.field("id", pa.binary()), "3q2+7w==", UNKNOWN),
        (pa.field("id", pa.binary()), "\\xabc", UNKNOWN),
        (pa.field("id", pa.binary()), 7, UNKNOWN),
    ],
)
def test_notified_values_follow_to_jsonb(field: pa.Field, value: object, expected: object) -> None:
    """Keys in notifications have the forms of `to_jsonb`; any other form is not used."""
    assert notified_value(value, field) == expected
