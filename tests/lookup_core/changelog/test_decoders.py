"""Decoders of all formats: changes keep their order, and undecodable messages change the table."""

from collections.abc import Callable, Sequence
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lookup_core.changelog.change_decoder import Decoded, DecoderSettings, RowChanges, TableChange
from lookup_core.changelog.event_origin import EventOrigins
from lookup_core.changelog.format import DECODERS, ChangelogFormat
from lookup_core.changelog.gathered_changes import KEY_REMEDY, OTHER_KEY
from lookup_core.changelog.key_readings import CONVERTER
from lookup_core.changelog.notification import NotificationDecoder
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode, InvalidRequest
from lookup_core.keys.typed_keys import NO_BLANKS_FIELD
from tests.lookup_core.changelog.change_messages import Message, listed, message, schema_of

SCHEMA = schema_of({"id": pa.int64()}, {"name": pa.utf8(), "tier": pa.int8()})
PAIR = schema_of({"line": pa.utf8(), "number": pa.int16()}, {"tier": pa.int8()})
ANN, NULLS = {"name": "Ann", "tier": 1}, {"name": None, "tier": None}
NO_KEY = f"a key does not have the dimension's type (type); {KEY_REMEDY}"
NO_PLAIN_KEY = f"the key is not valid JSON; {CONVERTER}"
NO_JSON = "not valid JSON"
OF_REGISTRY = (
    "not valid JSON, but of a schema registry; set value.converter="
    "org.apache.kafka.connect.json.JsonConverter in the connector"
)
NO_EVENT = "not a Debezium message"
NO_NOTIFICATION = "not a notification of version 1"
Decode = Callable[[Sequence[Message], DimensionSchema], Decoded]


def upserts(
    messages: Sequence[Message], schema: DimensionSchema = SCHEMA, *, with_rows: bool = True
) -> Decoded:
    """The changes in these upserts."""
    given = DecoderSettings(EventOrigins(""), with_rows=with_rows, max_message_bytes=90)
    form = ChangelogFormat("upsert_json")
    return DECODERS[form](schema, settings=given, loads=orjson.loads).decode(messages)


def events(messages: Sequence[Message], schema: DimensionSchema = SCHEMA) -> Decoded:
    """The keys that changed in these events of Debezium."""
    given = DecoderSettings(EventOrigins("public.t"), with_rows=False, max_message_bytes=400)
    form = ChangelogFormat("debezium_json")
    return DECODERS[form](schema, settings=given, loads=orjson.loads).decode(messages)


def notifications(messages: Sequence[Message], schema: DimensionSchema = SCHEMA) -> Decoded:
    """The keys that changed in these notifications."""
    payloads = [(each.value or b"").decode() for each in messages]
    return NotificationDecoder(schema, loads=orjson.loads).decode(payloads)


def event(
    operation: object, after: object = None, key: object = None, before: object = None
) -> Message:
    """An event of Debezium."""
    source = {"schema": "public", "table": "t", "txId": 7}
    return message(key, {"op": operation, "before": before, "after": after, "source": source})


def notification(**words: object) -> Message:
    """A notification of version 1."""
    return message(None, {"v": 1, "x": "7"} | words)


@pytest.mark.parametrize("form", ChangelogFormat)
def test_large_rows_have_no_values(form: ChangelogFormat) -> None:
    """A row beyond the limit of bytes is reported as changed; the others have their values."""
    given = DecoderSettings(EventOrigins("public.t"), with_rows=True, row_bytes=20)
    rows = [{"id": at, "name": "x" * length, "tier": 1} for at, length in ((1, 19), (2, 20))]
    messages = [message(row["id"], row) for row in rows]
    if form is ChangelogFormat.DEBEZIUM_JSON:
        messages = [event("c", row, {"id": row["id"]}) for row in rows]

    (change,) = DECODERS[form](SCHEMA, settings=given, loads=orjson.loads).decode(messages).changes

    assert isinstance(change, RowChanges)
    assert (change.has_row.tolist(), change.is_gone.tolist()) == ([True, False], [False, False])


GOOD: dict[Decode, Message] = {
    upserts: message(1, ANN),
    events: event("d", key={"id": 1}),
    notifications: notification(k=[[1]]),
}
WRONG: dict[Decode, list[tuple[Message, str]]] = {
    upserts: [
        *((Message(key, b"{}"), NO_PLAIN_KEY) for key in (b"{", b"[", b"Struct{id=1}")),
        *((Message(key, b"{}"), NO_PLAIN_KEY) for key in (b"", b"\0a", b"\xff")),
        (Message(b"OSL", b"{}"), NO_KEY),
        (Message(b"1", b"{"), NO_JSON),
        (Message(b"1", b"7"), "the value is not a JSON object"),
        *(
            (Message(key, b"{}"), "the key does not have the dimension's key columns")
            for key in (None, b"null", b"[1, 2]", b'{"number": 1}')
        ),
        (
            message({"schema": None, "payload": {"id": 1}}, ANN),
            ("the key does not have the dimension's key columns; set"
            " key.converter.schemas.enable=false and value.converter.schemas.enable=false"),
        ),
        *((Message(key, b"{}"), NO_KEY) for key in (b"1.5", b"true", b'"1.5"', b'"x"')),
        (Message(b"9223372036854775808", b"{}"), NO_KEY),
        (Message(b"1", b'{"name": "%s"}' % (b"x" * 79)), "91 bytes exceed the limit of 90"),
    ],
    events: [
        (Message(b"{}", b"{"), NO_JSON),
        (Message(b"{}", b""), NO_JSON),
        (Message(b"{}", b"\0\0\0\0\1avro"), OF_REGISTRY),
        (Message(b"Struct{id=1}", None), NO_PLAIN_KEY),
        (Message(b"{}", b"[]"), "not a JSON object"),
        (message({}, {"id": 1, "status": "flat", "ts_ms": 1}), NO_EVENT),
        (message({}, {"op": "c"}), "the event has no source"),
        (Message(b"{}", b'{"text": "%s"}' % (b"x" * 389)), "401 bytes exceed the limit of 400"),
        (event("z", {"id": 1}), "the operation is unknown"),
        (event(["c"], {"id": 1}), NO_EVENT),
        (event("c"), "the row lacks a key column"),
        (event("c", {"name": "A"}), "the row lacks a key column"),
        (event("u", {"name": "A"}, {"id": 1}), "the row lacks a key column"),
        (event("c", {"id": "x"}), NO_KEY),
    ],
    notifications: [
        *((Message(None, text), NO_JSON) for text in (b"", b"{")),
        (Message(None, b"[]"), NO_NOTIFICATION),
        (notification(v=2, k=[[1]]), NO_NOTIFICATION),
        *(
            (notification(**words), "a key does not have the dimension's key columns")
            for words in ({}, {"all": False}, {"k": [1]}, {"k": [[1, 2]]})
        ),
        *(
            (notification(x=x, k=[[1]]), "the transaction id is missing or malformed")
            for x in (None, 7, "-7")
        ),
        (notification(k=[["x"]]), NO_KEY),
        (notification(k=[["x" * 24_000]]), "24026 bytes exceed the limit of 24000"),
    ],
}  # fmt: skip
FORMATS = pytest.mark.parametrize("decode", GOOD)


@pytest.mark.parametrize(
    ("decode", "wrong", "reason"),
    [(decode, *case) for decode, found in WRONG.items() for case in found],
)
def test_undecodable_messages_change_the_table(decode: Decode, wrong: Message, reason: str) -> None:
    """An undecodable message is a change of the table at its place; its neighbours stay."""
    good = GOOD[decode]
    (expected,) = listed(decode([good], SCHEMA).changes)

    decoded = decode([good, wrong, good], SCHEMA)

    first, (kind, *_), last = listed(decoded.changes)
    assert (first, kind, last) == (expected, "table", expected)
    assert decoded.faults == {1: reason}


@FORMATS
def test_keys_need_exact_types(decode: Decode) -> None:
    """A key of a type that JSON cannot state exactly is refused before any message."""
    with pytest.raises(InvalidRequest) as caught:
        decode([], schema_of({"id": pa.float64()}, {}))

    assert caught.value.code is ErrorCode.KEY_TYPE


@settings(max_examples=50)
@given(st.data())
@FORMATS
def test_garbage_hides_no_neighbour(decode: Decode, data: st.DataObject) -> None:
    """Between messages of any bytes, each decodable message is reported, in its order."""
    make: dict[Decode, Callable[[int], Message]] = {
        upserts: lambda key: message(key, ANN),
        events: lambda key: event("c", {"id": key}),
        notifications: lambda key: notification(k=[[key]]),
    }
    steps = data.draw(st.lists(st.integers(0, 3) | st.binary(max_size=9)))
    if decode is notifications:
        steps = [each for each in steps if isinstance(each, int) or each.isascii()]
    messages = [
        make[decode](each) if isinstance(each, int) else Message(b"[]", each) for each in steps
    ]

    changes = listed(decode(messages, SCHEMA).changes)

    assert [key[0] for key, *_ in changes if isinstance(key, tuple)] == [
        each for each in steps if isinstance(each, int)
    ]


def test_changes_are_runs_of_columns() -> None:
    """Row changes between two changes of the table are one batch, in the dimension's types."""
    good, wrong = message(1, ANN), Message(b"{", None)

    decoded = upserts([good, good, wrong, wrong, message(2, ANN)])

    run, *tables, last = decoded.changes
    assert isinstance(run, RowChanges)
    assert isinstance(last, RowChanges)
    assert tables == [TableChange(NO_PLAIN_KEY)] * 2
    assert (run.keys.schema, run.rows.schema) == (SCHEMA.key, SCHEMA.columns)
    assert (run.has_row.tolist(), run.is_gone.tolist()) == ([True] * 2, [False] * 2)


@pytest.mark.parametrize(
    ("messages", "changes"),
    [
        ([message(1, ANN), message(1)], [((1,), ANN, 0), ((1,), "gone", 0)]),
        ([message(1, {**ANN, "more": 1})], [((1,), ANN, 0)]),
        ([message(1, {"id": 1, **ANN})], [((1,), ANN, 0)]),
        ([Message(b"1", b"null")], [((1,), "gone", 0)]),
        ([message(1, NULLS)], [((1,), NULLS, 0)]),
        ([message(1, {"name": "Ann"})], [((1,), "changed", 0)]),
        ([message(1, {"name": "Ann", "tier": 300})], [((1,), "changed", 0)]),
        ([Message(b"1", b'{"name": "%s"}' % (b"x" * 78))], [((1,), "changed", 0)]),  # 90 bytes
        ([message([1]), message({"id": 1})], [((1,), "gone", 0)] * 2),
    ],
)  # fmt: skip
def test_upsert_has_key_and_row(messages: list[Message], changes: list[Any]) -> None:
    """The value of an upsert is the row of its key; an incomplete row reports its key only."""
    assert listed(upserts(messages).changes) == changes


@pytest.mark.parametrize(
    "row",
    [
        {**ANN, "__deleted": "true"},  # a deletion that ExtractNewRecordState rewrote
        {**NULLS, "__op": "d"},
        {**ANN, "_ab_cdc_deleted_at": None},
        {"name": "__debezium_unavailable_value", "tier": 1},
    ],
)
def test_deleted_or_incomplete_rows_are_unused(row: dict[str, Any]) -> None:
    """A row that may be deleted or incomplete by its marks is reported as changed only."""
    assert listed(upserts([message(1, row)]).changes) == [((1,), "changed", 0)]


@pytest.mark.parametrize(
    ("decode", "changed"),
    [
        (upserts, message(1, {"id": 2, **ANN})),
        (events, event("u", {"id": 2}, 1)),
        (events, event("d", key=1, before={"id": 2})),
    ],
)
def test_contradicting_keys_drop_both(decode: Decode, changed: Message) -> None:
    """If the key of a message is not that of its row, both are dropped, and the log says so."""
    decoded = decode([changed], SCHEMA)

    assert {(key, change) for key, change, _ in listed(decoded.changes)} == {
        ((1,), "changed"),
        ((2,), "changed"),
    }
    assert (decoded.faults, decoded.hints) == ({}, {0: OTHER_KEY})


def test_own_columns_are_no_marks() -> None:
    """A column whose name looks like a mark is one of the row."""
    schema = schema_of({"id": pa.int64()}, {"_deleted": pa.bool_()})
    row = {"_deleted": False}

    assert listed(upserts([message(1, row)], schema).changes) == [((1,), row, 0)]


@pytest.mark.parametrize(
    ("decode", "changed"),
    [(upserts, message({"id": 1}, ANN)), (events, event("d", key={"id": 1}))],
)
def test_documents_may_have_schema_numbers(decode: Decode, changed: Message) -> None:
    """Documents behind the number of a schema in a registry are the same without it."""
    number = b"\0\0\0\1\7"
    framed = Message(number + (changed.key or b""), number + (changed.value or b""))

    decoded = decode([framed], SCHEMA)

    assert listed(decoded.changes) == listed(decode([changed], SCHEMA).changes)
    assert decoded.faults == {}


@pytest.mark.parametrize(
    "key", [["A", 3], {"line": "A", "number": 3}, {"number": 3, "more": 1, "line": "A"}]
)
def test_composite_key_has_two_forms(key: object) -> None:
    """A key of several columns is a list in the key's order, or an object."""
    with_null = message(["A", None], {"tier": 2})  # never looked up

    decoded = upserts([with_null, message(key, {"tier": 1})], PAIR)

    assert (listed(decoded.changes), decoded.faults) == ([(("A", 3), {"tier": 1}, 0)], {})


def test_rows_are_reported_on_request() -> None:
    """Without rows only keys are reported, also of rows that are gone."""
    decoded = upserts([message(1, ANN), message(2)], with_rows=False)

    assert listed(decoded.changes) == [((1,), "changed", 0), ((2,), "changed", 0)]


def test_upserts_have_their_own_time() -> None:
    """The source time of upserts is the latest timestamp, also of an undecodable message."""
    times = [message(1, timestamp=5), Message(b"{", None, 9), message(1, timestamp=7)]

    assert upserts(times).source_time_ms == 9
    assert upserts([message(1, timestamp=0), message(1)]).source_time_ms == 0


def test_notification_reports_its_keys() -> None:
    """A notification reports keys by its transaction, of which 32 bits are kept."""
    decoded = notifications(
        [notification(x="4294967299", k=[[1], [2]]), notification(x="4", k=[[1], [None]])]
    )

    assert listed(decoded.changes) == [
        *(((key,), "changed", transaction) for key, transaction in ((1, 3), (2, 3), (1, 4)))
    ]
    assert (decoded.faults, decoded.ignored) == ({}, 0)


def test_notification_may_cover_the_table() -> None:
    """A notification of many keys is a change of the table."""
    decoded = notifications([notification(k=[["A", 1]]), notification(all=True)], PAIR)

    assert listed(decoded.changes) == [(("A", 1), "changed", 7), ("table", 7)]
    assert decoded.faults == {}


def test_notification_may_be_a_heartbeat() -> None:
    """A heartbeat reports the time of the source and no change."""
    heartbeat = message(None, {"v": 1, "t": 1582979696123})

    assert notifications([heartbeat]) == Decoded([], 1582979696123, ignored=1)


@pytest.mark.parametrize(
    ("decode", "changed"),
    [
        (upserts, message("a   ", {"name": "x"})),
        (events, event("d", key={"id": "a   "})),
        (notifications, notification(k=[["a   "]])),
    ],
)
def test_char_keys_have_no_trailing_blanks(decode: Decode, changed: Message) -> None:
    """The padded key of a change of char(n) equals the key of a lookup."""
    char = pa.field("id", pa.utf8(), metadata=NO_BLANKS_FIELD)
    schema = DimensionSchema(pa.schema([char]), SCHEMA.columns)

    ((key, *_),) = listed(decode([changed], schema).changes)

    assert key == ("a",)
