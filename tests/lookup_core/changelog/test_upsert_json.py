"""Plain upserts: the message's key is the row's, its value the row."""

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_core.changelog.change_decoder import Decoded, DecoderSettings
from lookup_core.changelog.upsert_json import UpsertDecoder
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import InvalidRequest
from lookup_core.watermark_valve import NO_WATERMARK_MS
from tests.lookup_core.changelog.change_messages import Message, message, schema_of, told

SCHEMA = schema_of({"id": pa.int64()}, {"name": pa.utf8(), "born": pa.date32()})
PAIR = schema_of({"line": pa.utf8(), "number": pa.int16()}, {"tier": pa.int8()})
ANN = {"name": "Ann", "born": None}


def decoded(*messages: Message, schema: DimensionSchema = SCHEMA) -> Decoded:
    """What they say, rows included."""
    settings = DecoderSettings("", with_rows=True, max_message_bytes=64)
    decoder = UpsertDecoder(schema, settings, loads=orjson.loads)
    return decoder.decode(messages)


def test_value_is_the_row() -> None:
    """A value is the row of the key from then on, null its end; no transaction is known."""
    said = decoded(message(1, ANN), message(1, None), message(2, {**ANN, "more": 1}))

    assert told(list(said.changes)) == [((1,), ANN, 0), ((1,), "gone", 0), ((2,), ANN, 0)]
    assert (said.faults, said.ignored, said.source_time_ms) == ({}, 0, NO_WATERMARK_MS)


def test_null_document_ends_a_row() -> None:
    """A value that is null in JSON says the same as none."""
    assert told(list(decoded(Message(b"1", b"null")).changes)) == [((1,), "gone", 0)]


@pytest.mark.parametrize(
    "key", [["A", 3], {"line": "A", "number": 3}, {"number": 3, "more": 1, "line": "A"}]
)
def test_keys_of_several_columns(key: object) -> None:
    """A key of several columns is a list in the key's order, or an object by their names."""
    said = decoded(message(key, {"tier": 1}), schema=PAIR)

    assert told(list(said.changes)) == [(("A", 3), {"tier": 1}, 0)]


@pytest.mark.parametrize("key", [[1], {"id": 1}, 1])
def test_keys_of_one_column(key: object) -> None:
    """A key of one column is its value, alone, in a list or by its name."""
    assert told(list(decoded(message(key)).changes)) == [((1,), "gone", 0)]


def test_key_beats_the_row() -> None:
    """Where the row names another key, the message's key counts."""
    assert told(list(decoded(message(1, {"id": 2, **ANN})).changes)) == [((1,), ANN, 0)]


@pytest.mark.parametrize(
    "wrong",
    [
        Message(b"{", b"{}"),
        Message(b"1", b"{"),
        Message(b"1", b"7"),
        Message(None, b"{}"),
        Message(b"null", b"{}"),
        Message(b"[1, 2]", b"{}"),
        Message(b'{"number": 1}', b"{}"),
        Message(b"1.0", b"{}"),
        Message(b'"1"', b"{}"),
        Message(b"1", b'{"name": "%s"}' % (b"x" * 60)),
    ],
)
def test_bad_messages_cost_no_others(wrong: Message) -> None:
    """What cannot be decoded changes the table, is told, and its neighbours stay."""
    said = decoded(message(1, ANN), wrong, message(2, ANN))

    assert told(list(said.changes)) == [((1,), ANN, 0), ("table", 0), ((2,), ANN, 0)]
    assert [*said.faults] == [1]


def test_time_is_the_messages() -> None:
    """The source's time is that of the latest message, also of one that is undecodable."""
    said = decoded(message(1, timestamp=5), Message(b"{", None, 9), message(1, timestamp=7))

    assert said.source_time_ms == 9


def test_unnameable_keys_are_refused() -> None:
    """A key of a type that JSON cannot name is refused when the decoder is made."""
    with pytest.raises(InvalidRequest):
        decoded(schema=schema_of({"id": pa.float64()}, {}))


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans() | st.binary(max_size=9))))
def test_neighbours_of_garbage_are_told(steps: list[tuple[int, bool | bytes]]) -> None:
    """Among any other bytes, each message that can be decoded is told, in its order."""
    messages = [
        Message(b"%d" % key, what)
        if isinstance(what, bytes)
        else message(key, ANN if what else None)
        for key, what in steps
    ]

    said = decoded(*messages)

    rows = [
        each for each in told(list(said.changes)) if each[0] != "table" and each[1] != "changed"
    ]
    assert rows == [
        ((key,), ANN if what else "gone", 0) for key, what in steps if isinstance(what, bool)
    ]
