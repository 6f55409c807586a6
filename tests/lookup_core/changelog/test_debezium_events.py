"""Debezium's events, captured and made: which keys, rows and transactions they report."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lookup_core.changelog.change_decoder import Decoded, DecoderSettings, ReplayFilter, TableChange
from lookup_core.changelog.debezium_json import DebeziumDecoder
from lookup_core.changelog.event_origin import EventOrigins
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.event_time.watermark_valve import NO_WATERMARK_MS
from lookup_core.keys.typed_keys import UUID_FIELD
from tests.lookup_core.changelog.change_messages import (
    Listed,
    Message,
    captured,
    listed,
    message,
    schema_of,
)

BY_ID = schema_of({"id": pa.int64()}, {"code": pa.utf8(), "n2": pa.int16()})
BY_CODE = schema_of({"code": pa.utf8()}, {"n2": pa.int16()})
FIRST: dict[str, tuple[pa.DataType, Any]] = {
    "n2": (pa.int16(), -5),
    "f4": (pa.float32(), 0.10000000149011612),
    "f8": (pa.float64(), 0.1),
    "b": (pa.bool_(), True),
    "vc": (pa.utf8(), "dflt"),
    "u": (pa.utf8(), "0f9e4d1c-3a52-4b1e-8d9a-1c2b3a4d5e6f"),
    "e": (pa.utf8(), "sad"),
    "by": (pa.binary(), b"\xde\xad\xbe\xef"),
    "num": (pa.decimal128(10, 2), Decimal("12.50")),
    "d": (pa.date32(), date(2020, 2, 29)),
    "tz": (pa.timestamp("us", "UTC"), datetime(2020, 2, 29, 11, 34, 56, 123456, UTC)),
}
MANY = schema_of({"id": pa.int64()}, {name: kind for name, (kind, _) in FIRST.items()})
ROW = {name: value for name, (_, value) in FIRST.items()}
TIMES = {"ts": pa.timestamp("us"), "d": pa.date32()}
MOMENT = datetime(2020, 2, 29, 12, 34, 56, 123456)  # noqa: DTZ001
UUID = bytes.fromhex("0f9e4d1c3a524b1e8d9a1c2b3a4d5e6f")
SETTINGS = DecoderSettings(EventOrigins("public.t"), with_rows=True)
NO_NAMES: Mapping[str, object] = {}
OURS = replace(
    SETTINGS,
    origins=EventOrigins("public.t", database="postgres", server="a", is_server_configured=True),
)
KEYS = replace(SETTINGS, with_rows=False)
FULL = replace(SETTINGS, has_full_identity=True)
ADDED = replace(FULL, loses_keys=True)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=3,
)


def decoded(
    messages: list[Message],
    schema: DimensionSchema = BY_ID,
    *,
    settings: DecoderSettings = SETTINGS,
    log: ReplayFilter | None = None,
) -> Decoded:
    """What the messages report."""
    return DebeziumDecoder(schema, settings, loads=orjson.loads).decode(messages, log)


def changes(
    messages: list[Message], schema: DimensionSchema = BY_ID, settings: DecoderSettings = SETTINGS
) -> list[Listed]:
    """The changes that the messages report."""
    return listed(decoded(messages, schema, settings=settings).changes)


def by_id(**columns: pa.DataType) -> DimensionSchema:
    """A dimension by `id` with these columns."""
    return schema_of({"id": pa.int64()}, columns)


def event(
    operation: object,
    key: object = None,
    *,
    transaction_id: object = 7,
    source: Mapping[str, object] = NO_NAMES,
    **parts: object,
) -> Message:
    """An event of the table."""
    known = {"schema": "public", "table": "t", "db": "postgres", "txId": transaction_id, "ts_ms": 5}
    return message(key, {"op": operation, "source": {**known, **source}, **parts})


def at(sequence: str | None, operation: str = "u", **source: object) -> Message:
    """An event of row 1 with this position in the log."""
    known = {"schema": "public", "table": "t", "txId": 7, "ts_ms": 5, "sequence": sequence}
    after = {"id": 1, "code": "A", "n2": 1}
    return message({"id": 1}, {"op": operation, "after": after, "source": {**known, **source}})


def words(found: Decoded) -> list[str]:
    """The changes of row 1 in short form."""
    return ["row" if isinstance(each[1], dict) else str(each[1]) for each in listed(found.changes)]


def test_captured_keys_are_in_order() -> None:
    """Keys and transactions of captured events are reported in their order."""
    found = decoded(captured("plain t"), settings=KEYS)

    assert [(each[0], each[-1]) for each in listed(found.changes)] == [
        *[((1,), transaction) for transaction in (765, 766, 767, 768)],
        *[((2,), 768), ((2,), 769), ((3,), 770), ((4,), 771), ((5,), 771), ((6,), 771)],
        *[((3,), 780), ((3,), 781), ("table", 783), ((8,), 784), ((8,), 786)],
    ]
    assert (found.faults, found.ignored, found.source_time_ms) == ({}, 3, 1795286456776)


@pytest.mark.parametrize(
    ("topic", "part", "schema", "expected"),
    [
        ("plain t", slice(2), MANY, [((1,), ROW, 765), ((1,), {**ROW, "n2": 6}, 766)]),
        (  # a large value that did not change is not in the event
            *("plain t", slice(2), by_id(big=pa.utf8())),
            [((1,), {"big": "x" * 10}, 765), ((1,), "changed", 766)],
        ),
        (  # a row that moves to another primary key is a deletion and a new row
            *("plain t", slice(3, 9), BY_ID),
            [
                ((1,), "gone", 768),
                ((2,), {"code": "B", "n2": 6}, 768),
                ((2,), "gone", 769),
                ((3,), {"code": "inf", "n2": None}, 770),
            ],
        ),
        (  # infinite times, and those beyond the calendar, are null
            *("plain t", slice(8, 11), by_id(tz=pa.timestamp("us", "UTC"))),
            [
                *[((3,), {"tz": None}, 770), ((4,), {"tz": None}, 771)],
                ((5,), {"tz": datetime(1500, 1, 1, tzinfo=UTC)}, 771),
            ],
        ),
        (
            *("env t", slice(9), by_id(ts=TIMES["ts"], ts3=TIMES["ts"], num0=pa.decimal128(10, 0))),
            [((1,), {"ts": MOMENT, "ts3": MOMENT.replace(microsecond=123000), "num0": 1234}, 765)],
        ),
        ("env t", slice(9), MANY, [((1,), "changed", 765)]),  # defaults may stand for NULL
        ("alt t", slice(9), by_id(**TIMES), [((1,), "changed", 765)]),
        ("iso t", slice(9), by_id(**TIMES), [((1,), {"ts": MOMENT, "d": ROW["d"]}, 765)]),
    ],
)
def test_captured_rows_are_exact(
    topic: str, part: slice, schema: DimensionSchema, expected: list[Listed]
) -> None:
    """Rows of captured events are those of the table; a row with an unsure value is not used."""
    assert changes(captured(topic)[part], schema) == expected


@pytest.mark.parametrize(("topic", "count"), [("plain alt", 5), ("env alt", 1), ("alt alt", 1)])
def test_composite_keys_are_typed(topic: str, count: int) -> None:
    """Keys of several columns have the types of the dimension, in each mode of the converters."""
    key = [pa.field("id", pa.binary(16), metadata=UUID_FIELD), pa.field("k", pa.decimal128(6, 0))]
    schema = DimensionSchema(pa.schema(key), pa.schema({"v": pa.utf8()}))

    found = changes(captured(topic), schema, replace(SETTINGS, origins=EventOrigins("public.alt")))

    seven, eight = (UUID, Decimal(7)), (UUID, Decimal(8))
    moved = [(seven, {"v": "y"}, 773), (seven, "gone", 774), (eight, {"v": "y"}, 774)]
    assert found == [(seven, {"v": "x"}, 772), *moved][:count]


def test_full_identity_has_old_keys() -> None:
    """With REPLICA IDENTITY FULL the old key is in `before`; keys with NULL are left out."""
    schema = schema_of({"a": pa.int32()}, {"v": pa.utf8()})

    found = changes(
        captured("plain nopk"), schema, replace(FULL, origins=EventOrigins("public.nopk"))
    )

    assert found == [((1,), {"v": "p"}, 776), ((1,), {"v": "z"}, 777), ((1,), "gone", 778)]


def test_unknown_old_keys_change_the_table() -> None:
    """An event that lacks the old key is a change of the table; its reason names the remedy."""
    found = decoded(captured("plain t")[:4], BY_CODE)

    tables = [("table", transaction) for transaction in (766, 767, 768)]
    assert listed(found.changes) == [(("A",), {"n2": -5}, 765), *tables]
    reasons = [each.reason for each in found.changes if isinstance(each, TableChange)]
    assert all("REPLICA IDENTITY FULL" in reason for reason in reasons)
    assert found.faults == {}


@pytest.mark.parametrize(
    ("found", "settings", "expected"),
    [
        (
            event("u", before={"code": "A"}, after={"code": "B", "n2": 1}),
            FULL,
            [(("A",), "gone", 7), (("B",), {"n2": 1}, 7)],
        ),
        (  # from before the identity was full
            event("u", {"code": "B"}, before=None, after={"code": "B", "n2": 1}),
            FULL,
            [("table", 7)],
        ),
        (  # `message.key.columns` is of the new row
            event("u", {"code": "B"}, before=None, after={"code": "B", "n2": 1}),
            replace(SETTINGS, loses_keys=True),
            [("table", 7)],
        ),
        *(  # NULL, or what the connector has instead, for a column that was added with a default
            (event("u", before={"code": old}, after={"code": "B", "n2": 1}), ADDED, [("table", 7)])
            for old in (None, "")
        ),
        (event("d", before={"code": ""}), ADDED, [("table", 7)]),
        (
            event("u", before={"code": "B"}, after={"code": "B", "n2": 1}),
            ADDED,
            [(("B",), {"n2": 1}, 7)],
        ),
        *(
            (event("d", key, before={"code": ""}), SETTINGS, [("table", 7)])
            for key in (None, {"code": None}, {"id": 1}, {"schema": None, "payload": None})
        ),
    ],
)
def test_old_key_must_be_known(
    found: Message, settings: DecoderSettings, expected: list[Listed]
) -> None:
    """An update or deletion without its old key is a change of the table."""
    assert changes([found], BY_CODE, settings) == expected


def test_lone_tombstones_drop_keys() -> None:
    """A tombstone without its deletion may be of another database: its key has changed."""
    key = {"id": 1}
    broken = Message(message(key).key, b"{")

    found = decoded([message(key), broken, message(key), message(None), message({"other": 1})])

    assert listed(found.changes) == [((1,), "changed", 0), ("table", 0), ((1,), "changed", 0)]
    assert found.ignored == 2


@pytest.mark.parametrize(("source", "word"), [({}, ["gone"]), ({"db": "tenant2"}, [])])
def test_tombstone_follows_its_deletion(source: dict[str, str], word: list[str]) -> None:
    """A tombstone after its deletion is ignored, also in a batch of its own; another one counts."""
    log, key = ReplayFilter(), {"id": 1}
    deletion = event("d", key, source=source)

    batches = [[deletion], [message(key)], [message(key)], [deletion, message({"id": 2})]]
    found = [decoded(batch, settings=OURS, log=log) for batch in batches]

    assert [words(each) for each in found] == [word, [], ["changed"], [*word, "changed"]]
    assert [each.ignored for each in found] == [1 - len(word), 1, 0, 1 - len(word)]


@pytest.mark.parametrize(
    "messages",
    [
        *(
            captured(topic)
            for topic in ("__debezium-heartbeat.plain", "plain.message", "env.transaction")
        ),
        captured("plain nopk"),
        [message(None, {"ddl": "…", "tableChanges": [], "ts_ms": 3})],
    ],
    ids=["heartbeat", "message", "transaction", "other table", "schema change"],
)
def test_other_messages_report_the_time(messages: list[Message]) -> None:
    """Messages that are not of the table report the time of the source only."""
    found = decoded(messages)

    assert found.source_time_ms > NO_WATERMARK_MS
    assert found == Decoded([], found.source_time_ms, ignored=len(messages))


@pytest.mark.parametrize(
    ("times", "expected"), [([5, 9, 7], 9), ([None, 3.5, True, "8", 2**63, 2], 2)]
)
def test_source_time_is_the_latest(times: list[object], expected: int) -> None:
    """The source time is the latest one that is a whole number of 63 bits."""
    assert decoded([message(None, {"ts_ms": each}) for each in times]).source_time_ms == expected


@pytest.mark.parametrize("operation", ["c", "u", "d", "t", "r"])
@pytest.mark.parametrize(
    "source",
    [{"db": "tenant2"}, {"connector": "mysql"}, {"name": "b"}, {"name": "b", "schema": "other"}],
    ids=str,
)
def test_foreign_events_are_ignored(operation: str, source: dict[str, str]) -> None:
    """Events of another database, server or kind change nothing, not even the time of the source.

    The log names the setting.
    """
    log, ours = ReplayFilter(), event("c", source={"name": "a"}, after={"id": 1})
    foreign = event(operation, {"id": 1}, source=source, after={"id": 1}, sequence='["8","9"]')

    decoded([ours], settings=OURS, log=log)
    found = [decoded(each, settings=OURS, log=log) for each in ([foreign], [ours])]

    hints, source_time_ms = found[0].hints, found[0].source_time_ms
    assert found[0] == Decoded([], NO_WATERMARK_MS, ignored=1, hints=hints)
    assert (len(hints), source_time_ms) == (1, NO_WATERMARK_MS)
    assert (listed(found[1].changes), found[1].hints) == ([((1,), "changed", 7)], {})


def reported(senders: str, *, minutes: int = 61) -> ReplayFilter:
    """The log after an event of each connector at this distance; capitals read another database."""
    log, origins = ReplayFilter(), EventOrigins("public.t", database="own")
    for place, name in enumerate(senders):
        source = {"name": name.lower(), "db": "own" if name.islower() else "other"}
        found = event("c", {"id": 1}, source=source, after={"id": 1})
        timed = replace(found, timestamp=place * minutes * 60_000)
        decoded([timed], settings=replace(SETTINGS, origins=origins), log=log)
    return log


@pytest.mark.parametrize(
    ("senders", "expected"),
    [
        (["", "a", "Ba", "aB", "aBBB", "aAa", "abA", "BCDEFGHIJKaLM"], None),
        (["B", "aA", "aAB", "AA", "BCDEFGHIJK"], 'events of the database "other" are ignored'),
    ],
    ids=["a connector reads the database", "all of them read another one"],
)
def test_foreign_connectors_raise_doubt(senders: list[str], expected: str | None) -> None:
    """A topic is doubted while the last event of each of its connectors is foreign."""
    doubts = [reported(each).senders.doubt for each in senders]

    assert {doubt and doubt.partition(";")[0] for doubt in doubts} == {expected}


@pytest.mark.parametrize(
    ("senders", "since"), [("BC", "1970-01-01 00:00"), ("Ba" + "A" * 3, "1970-01-01 01:01")]
)
def test_doubt_names_its_beginning(senders: str, since: str) -> None:
    """A doubted topic names the latest event of the followed database, or else the first one."""
    doubt = reported(senders).senders.doubt

    assert doubt is not None
    assert doubt.endswith(f"; none of its own came since {since} UTC")


def test_shared_prefix_is_proof_for_an_hour() -> None:
    """Connectors of the same name in turn: an event of ours outweighs foreign ones for an hour."""
    doubts = [reported("a" + "A" * count, minutes=30).senders.doubt for count in range(4)]

    assert [doubt is None for doubt in doubts] == [True, True, True, False]


def test_unknown_names_are_ours() -> None:
    """An event that names no database, server or kind is of the table."""
    absent = event("d", {"id": 1}, source={"db": None, "name": None, "connector": None})

    found = decoded([absent], settings=OURS)

    assert (listed(found.changes), found.hints) == ([((1,), "gone", 7)], {})


def test_rows_of_doubtful_servers_are_not_used() -> None:
    """If only the topics suggest a server, events of another one report keys without transaction.

    Their positions are not compared with those of the table.
    """
    suggested = replace(SETTINGS, origins=EventOrigins("public.t", server="a"))
    first = at('["90","95"]', name="b")
    second = at('["20","25"]', name="a")

    found = decoded([first, second, event("t", source={"name": "b"})], settings=suggested)

    assert [(each[1], each[-1]) for each in listed(found.changes)] == [
        ("changed", 0),
        ({"code": "A", "n2": 1}, 7),
        (0, 0),
    ]
    assert sorted(found.hints) == [0, 2]
    assert "changelog.server" in found.hints[0]


def test_second_server_ends_trust_in_rows() -> None:
    """Without a known server, a second one changes the table once, and ends the use of rows."""
    log = ReplayFilter()
    messages = [at(f'["{place}","{place}"]', name=name) for place, name in enumerate("aabba", 1)]

    found = [decoded(batch, log=log) for batch in (messages[:2], messages[2:])]

    assert [words(each) for each in found] == [["row", "row"], ["0", *["changed"] * 3]]
    assert [sorted(each.hints) for each in found] == [[], [0, 1, 2]]


@pytest.mark.parametrize(
    ("given", "expected"), [(2**32 + 9, 9), (None, 0), ("9", 0), (True, 0), (9.0, 0)]
)
def test_transactions_have_32_bits(given: object, expected: int) -> None:
    """The low 32 bits of a transaction are kept; another value is an unknown transaction."""
    found = [event(operation, after={"id": 1}, transaction_id=given) for operation in "ct"]

    assert changes(found) == [((1,), "changed", expected), ("table", expected)]


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        # A later transaction may have written its rows earlier.
        ([at('["10","25"]'), at('["30","15"]'), at('["30","40"]')], ["row"] * 3),
        # A snapshot shows what was committed by then.
        *(
            (
                [at('["20","25"]'), at(read, "r", snapshot="incremental"), at('["20","26"]')],
                ["row", expected, "row"],
            )
            for read, expected in (
                ('[null,"30"]', "row"),
                ('["10","25"]', "row"),
                ('[null,"19"]', "changed"),
                (None, "changed"),
            )
        ),
        # A tombstone has no position.
        ([at('["20","25"]', ts_ms=None), message({"id": 1})], ["row", "changed"]),
    ],
)
def test_log_position_selects_rows(messages: list[Message], expected: list[str]) -> None:
    """Rows are reported by their position in the log of the database."""
    assert words(decoded(messages, log=ReplayFilter())) == expected


@pytest.mark.parametrize("settings", [KEYS, SETTINGS], ids=["keys", "rows"])
def test_new_log_changes_the_table(settings: DecoderSettings) -> None:
    """A new snapshot, or the log of a restored database, is a change of the table."""
    kinds = ["first", "true", "last", "first_in_data_collection", "last"]
    read = [at('[null,"30"]', "r", snapshot=kind) for kind in kinds]
    restored = [at('["2","5"]', ts_ms=100_000), at('["7","8"]', ts_ms=100_001)]

    snapshot = decoded([at('["10","20"]'), at('[null,"30"]', "r"), *read], settings=settings)
    restore = decoded([at('["20","25"]'), *restored], settings=settings, log=ReplayFilter())

    row = "row" if settings.with_rows else "changed"
    assert words(snapshot) == [row, "0", row, "0", row, row, row, "0", row, row]
    assert words(restore) == [row, "0", row, row]
    assert (snapshot.faults, restore.faults) == ({}, {})


@settings(max_examples=25)
@given(st.data())
def test_any_json_is_decoded(data: st.DataObject) -> None:
    """Any JSON at any place of a message and its schema is decoded without an error."""
    (real,) = captured("env t")
    documents = [orjson.loads(part or b"") for part in (real.key, real.value)]
    for document in documents:
        replace_one(document, data)

    assert len(decoded([message(*documents)], MANY).changes) <= 2


def replace_one(document: Any, data: st.DataObject) -> None:  # noqa: ANN401  JSON
    """Put any JSON at any place of the document."""
    places = [*document] if isinstance(document, dict) else [*range(len(document))]
    place = data.draw(st.sampled_from(places))
    if isinstance(document[place], dict | list) and document[place] and data.draw(st.booleans()):
        replace_one(document[place], data)
    else:
        document[place] = data.draw(ANY_JSON)
