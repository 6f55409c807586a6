"""What a notification says."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_core.changelog.change_decoder import Decoded
from lookup_core.changelog.notification import NotificationDecoder
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import InvalidRequest
from lookup_core.keys.key_casts import UUID_FIELD
from tests.lookup_core.changelog.change_messages import schema_of, told

SCHEMA = schema_of({"id": pa.int64()}, {"name": pa.utf8()})
PAIR = schema_of({"line": pa.utf8(), "number": pa.int16()}, {"name": pa.utf8()})
UUID = pa.field("id", pa.binary(16), metadata=UUID_FIELD)

NOON = datetime(2020, 2, 29, 12, 34, 56, 100_000)  # noqa: DTZ001
NOON_OF_UTC = NOON.replace(tzinfo=UTC)


def decoded(*payloads: str, schema: DimensionSchema = SCHEMA) -> Decoded:
    """What they say."""
    return NotificationDecoder(schema, loads=orjson.loads).decode(payloads)


def test_keys_have_changed() -> None:
    """The keys of a payload have changed, by its transaction, of which 32 bits are kept."""
    said = decoded('{"v":1,"x":"4294967299","k":[[1],[2]]}', '{"v":1,"x":"4","k":[[1]]}')

    assert told(list(said.changes)) == [
        ((1,), "changed", 3),
        ((2,), "changed", 3),
        ((1,), "changed", 4),
    ]
    assert (said.faults, said.ignored) == ({}, 0)


def test_all_may_have_changed() -> None:
    """Where keys are too many to be told, any row may have changed."""
    said = decoded('{"v":1,"x":"5","k":[["A",1]]}', '{"v":1,"x":"7","all":true}', schema=PAIR)

    assert told(list(said.changes)) == [(("A", 1), "changed", 5), ("table", 7)]
    assert said.faults == {}


def test_sign_of_life_tells_the_time() -> None:
    """A payload with a time says nothing of rows, but that the source had that time."""
    assert decoded('{"v":1,"t":1582979696123}') == Decoded([], 1582979696123, ignored=1)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        (pa.field("id", pa.bool_()), True, True),
        (pa.field("id", pa.utf8()), 'é"\\', 'é"\\'),
        (UUID, "30313233-3435-3637-3839-616263646566", b"0123456789abcdef"),
        (pa.field("id", pa.binary()), "\\xdeadbeef", b"\xde\xad\xbe\xef"),
        (pa.field("id", pa.binary()), "\\x", b""),
        (pa.field("id", pa.date32()), "2020-02-29", date(2020, 2, 29)),
        (pa.field("id", pa.timestamp("us")), "2020-02-29T12:34:56.1", NOON),
        (pa.field("id", pa.timestamp("us", "UTC")), "2020-02-29T13:34:56.1+01:00", NOON_OF_UTC),
        (pa.field("id", pa.decimal128(10, 2)), 12.5, Decimal("12.50")),
        (pa.field("id", pa.decimal128(10, 2)), 12, Decimal("12.00")),
        (pa.field("id", pa.decimal128(20, 2)), "12.50", Decimal("12.50")),
    ],
)
def test_values_are_as_postgresql_writes_them(
    field: pa.Field, value: object, expected: object
) -> None:
    """Values have the forms that to_jsonb gives them."""
    schema = DimensionSchema(pa.schema([field]), SCHEMA.columns)

    said = decoded(json.dumps({"v": 1, "x": "5", "k": [[value]]}), schema=schema)

    assert told(list(said.changes)) == [((expected,), "changed", 5)]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.decimal128(20, 2), 12.5),  # a double does not hold each number of 20 digits
        (pa.binary(), "3q2+7w=="),
        (pa.binary(), "\\xabc"),
        (pa.binary(), 7),
        (pa.date32(), "infinity"),
        (pa.timestamp("us"), "0044-03-15T00:00:00 BC"),
    ],
)
def test_unsure_keys_change_the_table(kind: pa.DataType, value: object) -> None:
    """A key that is not surely the one that was meant could be any."""
    payload = json.dumps({"v": 1, "x": "5", "k": [[None], [value]]})

    said = decoded(payload, schema=schema_of({"id": kind}, {"name": pa.utf8()}))

    reason = "a key is not of the dimension's type (type)"
    assert (told(list(said.changes)), said.faults) == ([("table", 5)], {0: reason})


@pytest.mark.parametrize(
    "payload",
    [
        "",
        "{",
        "[]",
        '{"v":2,"x":"1","k":[[1]]}',
        '{"v":1,"x":"1"}',
        '{"v":1,"x":"1","all":false}',
        '{"v":1,"k":[[1]]}',
        '{"v":1,"x":7,"k":[[1]]}',
        '{"v":1,"x":"-7","k":[[1]]}',
        '{"v":1,"x":"1","k":[1]}',
        '{"v":1,"x":"1","k":[[1,2]]}',
        '{"v":1,"x":"1","k":[["1"]]}',
        '{"v":1,"x":"1","k":[["\ud800"]]}',
        f'{{"v":1,"x":"1","k":[["{"x" * 8_000}"]]}}',
    ],
)
def test_undecodable_payload_changes_the_table(payload: str) -> None:
    """A payload that is none changes the table, is told, and its neighbours stay."""
    good = '{"v":1,"x":"3","k":[[1]]}'

    said = decoded(good, payload, good)

    changes = told(list(said.changes))
    assert (changes[0], changes[2:]) == (((1,), "changed", 3), [((1,), "changed", 3)])
    assert (changes[1][0], [*said.faults]) == ("table", [1])


def test_unnameable_keys_are_refused() -> None:
    """A key of a type that JSON cannot name is refused when the decoder is made."""
    with pytest.raises(InvalidRequest):
        decoded(schema=schema_of({"id": pa.float32()}, {}))


@given(st.lists(st.lists(st.tuples(st.text(), st.integers(-(2**15), 2**15 - 1)), max_size=3)))
def test_keys_arrive_as_they_were_sent(pieces: list[list[tuple[str, int]]]) -> None:
    """Keys that are sent in any pieces are all told, in their order."""
    payloads = [json.dumps({"v": 1, "x": "5", "k": piece}) for piece in pieces]

    said = decoded(*payloads, schema=PAIR)

    sent = [key for piece in pieces for key in piece]
    assert told(list(said.changes)) == [(key, "changed", 5) for key in sent]
