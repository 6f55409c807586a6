"""Debezium's events, as it really wrote them and as it could."""

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_core.changelog.change_decoder import Decoded, DecoderSettings, ReplayFilter, TableChange
from lookup_core.changelog.debezium_json import DebeziumDecoder
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import InvalidRequest
from lookup_core.keys.key_casts import UUID_FIELD
from lookup_core.watermark_valve import NO_WATERMARK_MS
from tests.lookup_core.changelog.change_messages import (
    Message,
    captured,
    message,
    schema_of,
    told,
)

BY_ID = schema_of({"id": pa.int64()}, {"code": pa.utf8(), "n2": pa.int16()})
BY_CODE = schema_of({"code": pa.utf8()}, {"n2": pa.int16()})
MANY = schema_of(
    {"id": pa.int64()},
    {
        "n2": pa.int16(),
        "f4": pa.float32(),
        "f8": pa.float64(),
        "b": pa.bool_(),
        "vc": pa.utf8(),
        "u": pa.utf8(),
        "e": pa.utf8(),
        "by": pa.binary(),
        "num": pa.decimal128(10, 2),
        "d": pa.date32(),
        "tz": pa.timestamp("us", "UTC"),
    },
)
FIRST: dict[str, Any] = {
    "n2": -5,
    "f4": 0.10000000149011612,
    "f8": 0.1,
    "b": True,
    "vc": "dflt",
    "u": "0f9e4d1c-3a52-4b1e-8d9a-1c2b3a4d5e6f",
    "e": "sad",
    "by": b"\xde\xad\xbe\xef",
    "num": Decimal("12.50"),
    "d": date(2020, 2, 29),
    "tz": datetime(2020, 2, 29, 11, 34, 56, 123456, UTC),
}
MOMENT = datetime(2020, 2, 29, 12, 34, 56, 123456)  # noqa: DTZ001
UUID = bytes.fromhex("0f9e4d1c3a524b1e8d9a1c2b3a4d5e6f")
SETTINGS = DecoderSettings("public.t", with_rows=True)
FULL = replace(SETTINGS, has_full_identity=True)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=3,
)
KEYS = replace(SETTINGS, with_rows=False)


def decoded(
    messages: list[Message],
    schema: DimensionSchema = BY_ID,
    *,
    settings: DecoderSettings = SETTINGS,
    log: ReplayFilter | None = None,
) -> Decoded:
    """What they say."""
    return DebeziumDecoder(schema, settings, loads=orjson.loads).decode(messages, log)


def event(
    operation: object, key: object = None, *, transaction_id: object = 7, **parts: object
) -> Message:
    """An event of the table, with what is said of it."""
    source = {"schema": "public", "table": "t", "db": "postgres", "txId": transaction_id}
    return message(key, {"op": operation, "source": {**source, "ts_ms": 5}, **parts})


def at(sequence: str | None, operation: str = "u", **source: object) -> Message:
    """An event of the row 1, which stands there in the log."""
    known = {"schema": "public", "table": "t", "txId": 7, "ts_ms": 5, "sequence": sequence}
    after = {"id": 1, "code": "A", "n2": 1}
    return message({"id": 1}, {"op": operation, "after": after, "source": {**known, **source}})


def words(said: Decoded) -> list[str]:
    """What is said of the row 1, in short."""
    return ["row" if isinstance(each[1], dict) else str(each[1]) for each in told([*said.changes])]


def test_real_events_tell_keys_and_transactions() -> None:
    """Under the default identity, keys, their ends and their transactions are told in order."""
    said = decoded(captured("plain t"), settings=KEYS)

    assert [(each[0], each[-1]) for each in told(list(said.changes))] == [
        *[((1,), transaction) for transaction in (765, 766, 767, 768)],
        *[((2,), 768), ((2,), 769), ((3,), 770), ((4,), 771), ((5,), 771), ((6,), 771)],
        *[((3,), 780), ((3,), 781), ("table", 783), ((8,), 784), ((8,), 786)],
    ]
    assert (said.faults, said.ignored, said.source_time_ms) == ({}, 3, 1795286456776)


def test_real_rows_are_exact() -> None:
    """A row is told with the values that the table has; what was not sent again is not."""
    said = decoded(captured("plain t")[:2], MANY)

    assert told(list(said.changes)) == [((1,), FIRST, 765), ((1,), {**FIRST, "n2": 6}, 766)]


def test_unchanged_large_values_are_not_told() -> None:
    """A row in which PostgreSQL left out a large value that is the same as before is a hole."""
    schema = schema_of({"id": pa.int64()}, {"big": pa.utf8()})

    said = decoded(captured("plain t")[:2], schema)

    assert told(list(said.changes)) == [((1,), {"big": "x" * 10}, 765), ((1,), "changed", 766)]


def test_moved_rows_leave_their_key() -> None:
    """A row that moves to another primary key is a deletion and a new row."""
    said = decoded(captured("plain t")[3:9])

    assert told(list(said.changes)) == [
        ((1,), "gone", 768),
        ((2,), {"code": "B", "n2": 6}, 768),
        ((2,), "gone", 769),
        ((3,), {"code": "inf", "n2": None}, 770),
    ]
    assert said.ignored == 2  # the tombstones


def test_infinite_times_are_not_told() -> None:
    """A row with a time that no date can be is a hole."""
    schema = schema_of({"id": pa.int64()}, {"tz": pa.timestamp("us", "UTC")})

    said = decoded(captured("plain t")[8:11], schema)

    assert [each[1] for each in told(list(said.changes))] == [
        "changed",
        "changed",
        {"tz": datetime(1500, 1, 1, tzinfo=UTC)},
    ]


def test_schemas_in_messages_settle_types() -> None:
    """With schemas, timestamps are read by their units, and defaults may stand for NULL."""
    timestamps = {"ts": pa.timestamp("us"), "ts3": pa.timestamp("us")}
    schema = schema_of({"id": pa.int64()}, {**timestamps, "num0": pa.decimal128(10, 0)})

    rows = told(list(decoded(captured("env t"), schema).changes))

    ts3 = MOMENT.replace(microsecond=123000)
    assert rows == [((1,), {"ts": MOMENT, "ts3": ts3, "num0": Decimal(1234)}, 765)]
    assert told(list(decoded(captured("env t"), MANY).changes)) == [((1,), "changed", 765)]


@pytest.mark.parametrize("topic", ["alt t", "iso t"])
def test_other_modes_give_the_same(topic: str) -> None:
    """Other modes of the connector tell the same values, as far as they are sure."""
    schema = schema_of({"id": pa.int64()}, {"ts": pa.timestamp("us"), "d": pa.date32()})

    rows = told(list(decoded(captured(topic), schema).changes))

    expected = {"ts": MOMENT, "d": date(2020, 2, 29)} if topic == "iso t" else "changed"
    assert rows == [((1,), expected, 765)]


@pytest.mark.parametrize(("topic", "columns"), [("plain alt", 5), ("env alt", 1), ("alt alt", 1)])
def test_composite_keys_are_typed(topic: str, columns: int) -> None:
    """Keys of several columns have the dimension's types, whatever their forms."""
    key = [pa.field("id", pa.binary(16), metadata=UUID_FIELD), pa.field("k", pa.decimal128(6, 0))]
    schema = DimensionSchema(pa.schema(key), pa.schema({"v": pa.utf8()}))

    rows = told(
        list(
            decoded(captured(topic), schema, settings=replace(SETTINGS, table="public.alt")).changes
        )
    )

    seven, eight = (UUID, Decimal(7)), (UUID, Decimal(8))
    moved = [(seven, {"v": "y"}, 773), (seven, "gone", 774), (eight, {"v": "y"}, 774)]
    assert rows == [(seven, {"v": "x"}, 772), *moved][:columns]


def test_full_identity_tells_old_keys() -> None:
    """With the full identity, old keys are in `before`; nobody can look up a key that is NULL."""
    schema = schema_of({"a": pa.int32()}, {"v": pa.utf8()})

    said = decoded(captured("plain nopk"), schema, settings=replace(FULL, table="public.nopk"))

    assert told(list(said.changes)) == [
        ((1,), {"v": "p"}, 776),
        ((1,), {"v": "z"}, 777),
        ((1,), "gone", 778),
    ]


def test_unknown_old_keys_change_the_table() -> None:
    """Where an event does not tell the old key, it is a change of the table, by its transaction."""
    said = decoded(captured("plain t")[:4], BY_CODE)

    assert told(list(said.changes)) == [
        (("A",), {"n2": -5}, 765),
        ("table", 766),
        ("table", 767),
        ("table", 768),
    ]
    reasons = [change.reason for change in said.changes if isinstance(change, TableChange)]
    assert all("REPLICA IDENTITY FULL" in reason for reason in reasons)
    assert said.faults == {}


def test_moved_lookup_keys_are_two() -> None:
    """An update that moves a row to another key tells the end of the old one, then the row."""
    moved = event("u", before={"code": "A"}, after={"code": "B", "n2": 1})

    said = decoded([moved], BY_CODE, settings=FULL)

    assert told(list(said.changes)) == [(("A",), "gone", 7), (("B",), {"n2": 1}, 7)]


@pytest.mark.parametrize(
    "key", [None, {"code": None}, {"id": 1}, {"schema": None, "payload": None}]
)
def test_key_of_deletion_must_be_known(key: object) -> None:
    """A deletion whose message does not name the key is one of any row."""
    said = decoded([event("d", key, before={"code": ""})], BY_CODE)

    assert (told(list(said.changes)), said.faults) == ([("table", 7)], {})


def test_full_identity_may_be_missing() -> None:
    """An update from before the identity was full does not tell the old key."""
    updated = event("u", {"code": "B"}, before=None, after={"code": "B", "n2": 1})

    said = decoded([updated], BY_CODE, settings=FULL)

    assert told(list(said.changes)) == [("table", 7)]


def test_lone_tombstones_end_a_row() -> None:
    """A tombstone whose deletion is not beside it says the same, without a transaction."""
    said = decoded([message({"id": 1}), message({"id": 1}), message(None), message({"other": 1})])

    assert told(list(said.changes)) == [((1,), "gone", 0), ((1,), "gone", 0)]
    assert said.ignored == 2


@pytest.mark.parametrize(
    "topic", ["__debezium-heartbeat.plain", "plain.message", "env.transaction", "plain nopk"]
)
def test_other_messages_tell_the_time(topic: str) -> None:
    """What is not of the table says nothing of it, but what time it is at the source."""
    said = decoded(captured(topic))

    assert said.source_time_ms > NO_WATERMARK_MS
    assert said == Decoded([], said.source_time_ms, ignored=len(captured(topic)))


def test_changes_of_schemas_are_ignored() -> None:
    """A message about the schema says nothing of rows."""
    said = decoded([message(None, {"ddl": "…", "tableChanges": [], "ts_ms": 3})])

    assert said == Decoded([], 3, ignored=1)


@pytest.mark.parametrize("database", [None, "postgres", "other"])
def test_other_databases_are_ignored(database: str | None) -> None:
    """If the database is given, events of others are not the table's."""
    said = decoded([event("c", after={"id": 1})], settings=replace(SETTINGS, database=database))

    assert (len(said.changes), said.ignored) == ((0, 1) if database == "other" else (1, 0))


@pytest.mark.parametrize(
    ("given", "expected"), [(2**32 + 9, 9), (None, 0), ("9", 0), (True, 0), (9.0, 0)]
)
def test_transactions_are_numbers(given: object, expected: int) -> None:
    """A transaction has the low half of its number; what is no number is unknown."""
    said = decoded([event("c", after={"id": 1}, transaction_id=given)])

    assert told(list(said.changes)) == [((1,), "changed", expected)]


@pytest.mark.parametrize(
    "wrong",
    [
        Message(b"{}", b"{"),
        Message(b"{}", b"\0\0\0\0\1avro"),
        Message(b"{}", b"[]"),
        Message(b"{}", json.dumps({"id": 1, "status": "flattened", "ts_ms": 1}).encode()),
        Message(b"{}", b'{"op": "c"}'),
        Message(b"{}", b'{"text": "%s"}' % (b"x" * 500)),
        Message(b"Struct{id=1}", None),
        event("z", after={"id": 1}),
        event(["c"], after={"id": 1}),
        event("c", after=None),
        event("c", after={"code": "A"}),
        event("u", {"id": 1}, after={"code": "A"}),
    ],
)
def test_undecodable_messages_change_the_table(wrong: Message) -> None:
    """What cannot be decoded changes the table, is told, and its neighbours stay."""
    good = event("d", {"id": 1})

    said = decoded([good, wrong, good], settings=replace(SETTINGS, max_message_bytes=400))

    assert told(list(said.changes)) == [((1,), "gone", 7), ("table", 0), ((1,), "gone", 7)]
    assert [*said.faults] == [1]


def test_unreadable_keys_change_the_table() -> None:
    """A key that is not of the dimension's type could be any, by its transaction."""
    said = decoded([event("c", after={"id": "1"}), event("d", {"id": 1})])

    assert told(list(said.changes)) == [("table", 7), ((1,), "gone", 7)]
    assert [*said.faults] == [0]


def test_unnameable_keys_are_refused() -> None:
    """A key of a type that JSON cannot name is refused when the decoder is made."""
    with pytest.raises(InvalidRequest):
        decoded([], schema_of({"id": pa.float64()}, {}))


def test_replayed_rows_are_not_told() -> None:
    """What was told before the newest record of the log is no news when it is told again."""
    log, messages = ReplayFilter(), captured("plain t")[:6]  # the last but one is a tombstone
    first = decoded(messages, log=log)

    again = decoded(messages, log=log)

    assert words(first) == ["row", "row", "row", "gone", "row"]
    assert words(again) == ["changed", "changed", "changed", "gone", "row"]


def test_mixed_transactions_are_told() -> None:
    """What was written earlier by a transaction that ended later is news."""
    said = decoded([at('["10","25"]'), at('["30","15"]'), at('["30","40"]')], log=ReplayFilter())

    assert words(said) == ["row"] * 3


@pytest.mark.parametrize(
    ("sequence", "expected"), [('[null,"30"]', "row"), ('["10","25"]', "row"), (None, "changed")]
)
def test_rows_that_were_read_are_told(sequence: str | None, expected: str) -> None:
    """A snapshot shows what had ended by then; the changes that follow are told as before."""
    read = at(sequence, "r", snapshot="incremental")

    said = decoded([at('["20","25"]'), read, at('["20","26"]')], log=ReplayFilter())

    assert words(said) == ["row", expected, "row"]


def test_old_snapshots_are_not_told() -> None:
    """Rows that were read before the newest change are not told."""
    read = at('[null,"19"]', "r", snapshot="incremental")

    said = decoded([at('["20","25"]'), read], log=ReplayFilter())

    assert words(said) == ["row", "changed"]


@pytest.mark.parametrize("settings", [KEYS, SETTINGS])
def test_new_snapshots_change_the_table(settings: DecoderSettings) -> None:
    """After a gap all rows are read, and those that are gone are not among them."""
    kinds = ["first", "true", "last", "first_in_data_collection", "last"]
    read = [at('[null,"30"]', "r", snapshot=kind) for kind in kinds]

    said = decoded([at('["10","20"]'), at('[null,"30"]', "r"), *read], settings=settings)

    row = "row" if settings.with_rows else "changed"
    assert words(said) == [row, "0", row, "0", row, row, row, "0", row, row]
    assert said.faults == {}


@pytest.mark.parametrize("settings", [KEYS, SETTINGS])
def test_restored_database_changes_the_table(settings: DecoderSettings) -> None:
    """A former place at a later time is of another log; the rows after it are news."""
    restored = [at('["2","5"]', ts_ms=100_000), at('["7","8"]', ts_ms=100_001)]

    said = decoded([at('["20","25"]'), *restored], settings=settings, log=ReplayFilter())

    row = "row" if settings.with_rows else "changed"
    assert told(list(said.changes))[1] == ("table", 0)
    assert words(said) == [row, "0", row, row]
    assert said.faults == {}


def test_lone_tombstones_may_be_replayed() -> None:
    """A tombstone stands nowhere; where changes do, it ends no row."""
    said = decoded([at('["20","25"]', ts_ms=None), message({"id": 1})], log=ReplayFilter())

    assert words(said) == ["row", "changed"]


def test_keys_are_told_wherever_they_stand() -> None:
    """If no rows are told, what is told again is the same."""
    said = decoded([at('["20","25"]'), at('["2","5"]')], settings=KEYS, log=ReplayFilter())

    assert words(said) == ["changed"] * 2


@given(st.data())
def test_any_json_is_survived(data: st.DataObject) -> None:
    """Whatever stands in a message, and in its schema, decoding it ends without an error."""
    documents = [orjson.loads(part) for part in captured_parts()]
    for document in documents:
        replace_one(document, data)

    said = decoded([message(*documents)], MANY)

    assert len(said.changes) <= 2


def captured_parts() -> list[bytes]:
    """Key and value of an event with schemas."""
    (real,) = captured("env t")
    assert real.key is not None
    assert real.value is not None
    return [real.key, real.value]


def replace_one(document: Any, data: st.DataObject) -> None:  # noqa: ANN401  JSON
    """Put any JSON at any place of the document."""
    places = [*document] if isinstance(document, dict) else [*range(len(document))]
    place = data.draw(st.sampled_from(places))
    if isinstance(document[place], dict | list) and document[place] and data.draw(st.booleans()):
        replace_one(document[place], data)
    else:
        document[place] = data.draw(ANY_JSON)


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("curdt") | st.binary(max_size=9))))
def test_neighbours_of_garbage_are_told(steps: list[tuple[int, str | bytes]]) -> None:
    """Among any other bytes, each event is told, in its order."""
    messages = [
        Message(None, what)
        if isinstance(what, bytes)
        else event(what, {"id": key}, after={"id": key})
        for key, what in steps
    ]

    said = decoded(messages, settings=KEYS)

    assert [each for each in told(list(said.changes)) if each[-1]] == [
        ("table", 7) if what == "t" else ((key,), "changed", 7)
        for key, what in steps
        if isinstance(what, str)
    ]
