"""Keys that do not have their type exactly: all keys that they may mean are dropped, no others."""

import json
from datetime import date, datetime
from decimal import Decimal

import orjson
import pyarrow as pa
import pytest

from lookup_core.changelog.change_decoder import Decoded, DecoderSettings
from lookup_core.changelog.event_origin import EventOrigins
from lookup_core.changelog.format import DECODERS, ChangelogFormat
from lookup_core.changelog.key_readings import CONVERTER
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.keys.typed_keys import NO_NUL_FIELD, UUID_FIELD
from tests.lookup_core.changelog.change_messages import Message, listed

SETTINGS = DecoderSettings(EventOrigins("public.t"), with_rows=True)
NAME = pa.schema({"name": pa.utf8()})
TEXT = pa.field("id", pa.utf8(), metadata=NO_NUL_FIELD)
UUID = pa.field("id", pa.binary(16), metadata=UUID_FIELD)
WHOLE, WIDE = pa.field("id", pa.decimal128(12, 0)), pa.field("id", pa.decimal128(38, 0))
MOMENT = pa.field("id", pa.timestamp("us"))
ZONED = pa.field("id", pa.timestamp("us", "UTC"))
INFINITE_US = 9223372036825200000  # in nanoseconds, a moment of the year 2262
NOON_US = 1582977600000000  # 2020-02-29 12:00:00
DELETION = {"op": "d", "source": {"schema": "public", "table": "t", "txId": 7}}


def id_of(kind: pa.DataType) -> pa.Field:
    """A key of this type."""
    return pa.field("id", kind)


def decoded(form: ChangelogFormat, field: pa.Field, messages: list[Message]) -> Decoded:
    """What the messages change in a dimension with this key."""
    schema = DimensionSchema(pa.schema([field]), NAME)
    return DECODERS[form](schema, settings=SETTINGS, loads=orjson.loads).decode(messages)


def dropped(found: Decoded) -> list[object]:
    """The keys that are reported as changed, or `table`."""
    return ["table" if each[0] == "table" else each[0][0] for each in listed(found.changes)]


@pytest.mark.parametrize("form", ChangelogFormat)
@pytest.mark.parametrize(
    ("key", "field", "expected"),
    [
        *((each, TEXT, [each.decode()]) for each in (b"OSL", b"123", b"true", b"null", b"1e2")),
        *((each, TEXT, [each.decode()]) for each in (b" a b", "Ås".encode(), b"-")),
        (b"Struct{id=OSL}", TEXT, ["table"]),
        (b"{id=OSL}", TEXT, ["table"]),
        (b"\0\0\0\0\1\6OSL", TEXT, ["table"]),  # Avro
        (b"OSL\n", TEXT, ["table"]),
        (b"+7", id_of(pa.int64()), [7]),
        (b'"7"', id_of(pa.int64()), [7]),
        (b"7.0", id_of(pa.int64()), [7]),
        (b"7.5", id_of(pa.int64()), ["table"]),
        (b"t", id_of(pa.bool_()), [True]),
        (b"2020-02-29", id_of(pa.date32()), [date(2020, 2, 29)]),
        (
            b"00112233-4455-6677-8899-aabbccddeeff",
            UUID,
            [bytes.fromhex("00112233445566778899aabbccddeeff")],
        ),
        (b"12345678901234567890.0", WIDE, [Decimal(12345678901234567890)]),
        (b"x", id_of(pa.binary()), ["table"]),
    ],
)
def test_plain_texts_drop_their_keys(
    form: ChangelogFormat, key: bytes, field: pa.Field, expected: list[object]
) -> None:
    """A key as StringConverter writes it drops its key; a key without a reading, all rows.

    The log names the setting of the connector.
    """
    value = {"name": "n"} if form is ChangelogFormat.UPSERT_JSON else DELETION
    neighbours = [Message(None, None), Message(key, json.dumps(value).encode())]

    found = decoded(form, field, neighbours[form is ChangelogFormat.UPSERT_JSON :])

    assert dropped(found) == expected
    reasons = [*found.faults.values(), *found.hints.values()]
    assert [word in reasons[0] for word in ("key.converter", "connector")] == [True, True]
    if field == TEXT:
        assert CONVERTER in reasons[0]


@pytest.mark.parametrize(
    ("value", "field", "expected"),
    [
        # Decimals as texts, or as bytes in base64.
        ("1234", WHOLE, [Decimal(1234), Decimal(-2658824)]),
        ("12345678", WHOLE, [Decimal(12345678)]),  # base64 has too many digits
        ("123456789012", WHOLE, [Decimal(123456789012)]),
        ("12345", WHOLE, [Decimal(12345)]),
        ("BOI=", WHOLE, [Decimal(1250)]),
        ("123456789012345678901", WIDE, [Decimal(123456789012345678901)]),
        # As doubles.
        (1234.0, WHOLE, [Decimal(1234)]),
        (1234, WHOLE, [Decimal(1234)]),
        (1234.0, WIDE, [Decimal(1234)]),
        (1e15, WIDE, ["table"]),  # a double may have lost digits
        ({"scale": -1, "value": "Dw=="}, WHOLE, [Decimal(150)]),
        # Bytes in base64, or hexadecimal.
        ("deadbeef", id_of(pa.binary()), [b"\x75\xe6\x9d\x6d\xe7\x9f", b"\xde\xad\xbe\xef"]),
        ("deadbe", id_of(pa.binary()), [b"\xde\xad\xbe"]),
        # Moments in units of a second; milliseconds may be truncated.
        (NOON_US, MOMENT, [datetime(2020, 2, 29, 12), datetime(1970, 1, 19, 7, 42, 57, 600_000)]),  # noqa: DTZ001
        (NOON_US + 1, MOMENT, [datetime(2020, 2, 29, 12, 0, 0, 1)]),  # noqa: DTZ001
        (NOON_US // 1000, MOMENT, ["table"]),
        (18321, id_of(pa.date32()), [date(2020, 2, 29)]),
        # Values that are no keys.
        (2932897, id_of(pa.date32()), []),  # the year 10000
        ("infinity", ZONED, []),
        ("NAN", WHOLE, []),
        (INFINITE_US, MOMENT, [datetime(2262, 4, 11, 23, 47, 16, 825_200)]),  # noqa: DTZ001
        ("__debezium_unavailable_value", TEXT, ["table"]),
        (7, TEXT, ["7"]),
        (True, TEXT, ["true"]),
    ],
)
def test_ambiguous_keys_drop_all_readings(
    value: object, field: pa.Field, expected: list[object]
) -> None:
    """A key of Debezium without a schema drops all keys that it may mean, by its precision."""
    key = json.dumps({"id": value}).encode()
    messages = [Message(key, json.dumps(DELETION).encode())]

    found = decoded(ChangelogFormat.DEBEZIUM_JSON, field, messages)

    assert dropped(found) == expected
    is_read_otherwise = len(expected) > 1 or field == TEXT or value == INFINITE_US
    assert len(found.hints) == is_read_otherwise * (expected != ["table"])


@pytest.mark.parametrize(("part", "kind"), [(7, pa.int32()), (True, pa.bool_()), ("a", pa.utf8())])
def test_exact_parts_keep_their_value(part: object, kind: pa.DataType) -> None:
    """If one column of a key is ambiguous, the others have their value in each reading."""
    schema = DimensionSchema(pa.schema([pa.field("part", kind), WHOLE]), NAME)
    decoder = DECODERS[ChangelogFormat.DEBEZIUM_JSON](schema, settings=SETTINGS, loads=orjson.loads)
    key = json.dumps({"part": part, "id": "1234"}).encode()

    found = decoder.decode([Message(key, json.dumps(DELETION).encode())])

    assert dropped(found) == [part, part]
    assert [each[0][1] for each in listed(found.changes)] == [Decimal(1234), Decimal(-2658824)]
    assert found.faults == {}


def test_ambiguous_rows_follow_the_others() -> None:
    """The keys of an ambiguous event are dropped with its transaction, after all other changes."""
    after = {"name": "n"}
    changes = [
        {"op": "c", "after": {"id": key, **after}, "source": DELETION["source"]}
        for key in ("12345", "1234", "12346")
    ]
    messages = [Message(None, json.dumps(each).encode()) for each in changes]

    found = decoded(ChangelogFormat.DEBEZIUM_JSON, WHOLE, messages)

    assert listed(found.changes) == [
        ((Decimal(12345),), after, 7),
        ((Decimal(12346),), after, 7),
        ((Decimal(1234),), "changed", 7),
        ((Decimal(-2658824),), "changed", 7),
    ]
    assert (found.faults, [*found.hints]) == ({}, [1])


def test_too_many_readings_change_the_table() -> None:
    """A composite key with very many readings is a change of the table."""
    key = pa.schema([pa.field(f"k{at}", pa.decimal128(12, 0)) for at in range(5)])
    content = json.dumps(dict.fromkeys(key.names, "1234")).encode()
    schema = DimensionSchema(key, NAME)
    decoder = DECODERS[ChangelogFormat.DEBEZIUM_JSON](schema, settings=SETTINGS, loads=orjson.loads)

    found = decoder.decode([Message(content, json.dumps(DELETION).encode())])

    assert (dropped(found), len(found.faults)) == (["table"], 1)
