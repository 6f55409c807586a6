"""The notification feed without a server: inbox, reader, session, and trigger check."""

import asyncio
import socket
import sys

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from lookup_core.changelog.change_decoder import TableChange
from lookup_core.dimension_schema import DimensionSchema, TableOrigin
from lookup_core.errors import BackendError
from lookup_core.event_time.watermark_valve import NO_WATERMARK_MS
from lookup_core.freshness.server_identity import ServerIdentity
from lookup_core.sources.splits import ReadingMode, Split
from service.connectors.ports.source import SplitPiece
from service.connectors.postgres.notifications import (
    PostgresNotifications,
    PostgresNotificationsInbox,
    PostgresNotificationsReader,
    PostgresNotificationsSession,
    PostgresNotificationsSettings,
    Taken,
)
from service.connectors.postgres.triggers import FUNCTION_SETTINGS, TableTriggers, TriggerCheck
from tools.virtual_time import run_in_virtual_time

SCHEMA = DimensionSchema(
    pa.schema({"id": pa.int32()}), pa.schema({"note": pa.utf8()}), TableOrigin("public", "t")
)
SPLIT = Split("notifications")
GAP = TableChange("notifications may have been lost before the connection was made")
FOUR_BYTES = sys.getsizeof("aaaa")
TRIGGERS = TableTriggers(
    "told_1f",
    "BEGIN NOTIFY told; END",
    names={"insert": "told_insert", "truncate": "told_truncate"},
    types={"truncate": 32, "insert": 4},
)
ROWS = [("told_insert", None, "1f", 7), ("told_truncate", None, "2e", 7)]
GONE = [(name, "missing on shop.p1", version, 7) for name, _, version, _ in ROWS]
REMEDY = "run the output of `python -m service gen-triggers customers`"
ALTERED = "ALTER TABLE, ALTER TYPE, TRUNCATE or VACUUM FULL ran"
MISSING = f"triggers missing on shop.p1: {{}}; {REMEDY}"


def inbox_of(*entries: str | int, max_bytes: int = 10_000) -> PostgresNotificationsInbox:
    """An inbox with these entries, after its first gap was taken."""
    inbox = PostgresNotificationsInbox(max_bytes=max_bytes)
    inbox.take_entries(1)
    assert all(inbox.add_entry(entry) for entry in entries)
    return inbox


def taken(
    *payloads: str, gap: TableChange | None = None, heartbeat_ms: int = NO_WATERMARK_MS
) -> Taken:
    """One take from an inbox."""
    return Taken([*payloads], gap, heartbeat_ms)


def test_inbox_starts_with_a_gap() -> None:
    """An inbox reports a gap first, with the last transaction before the connection."""
    new, connected = (PostgresNotificationsInbox(max_bytes=1_000) for _ in range(2))
    new.add_entry("a")
    connected.on_connected(2**32 + 5)

    assert (new.is_empty, new.take_entries(1_000), new.is_empty) == (
        False,
        taken("a", gap=GAP),
        True,
    )
    assert connected.take_entries(1_000) == taken(gap=TableChange(GAP.reason, 5, is_gap=True))


def test_inbox_keeps_the_order() -> None:
    """Payloads are taken once, up to the entry that exceeds the bytes, or with a heartbeat."""
    inbox = inbox_of("aaaa", "bbbb", "aaaa", 5, "after")

    found = [inbox.take_entries(each) for each in (FOUR_BYTES + 1, FOUR_BYTES, 1, 1_000, 1_000)]

    assert found == [
        *(taken("aaaa", "bbbb"), taken("aaaa"), taken(heartbeat_ms=5)),
        *(taken("after"), taken()),
    ]


def test_full_inbox_refuses_entries() -> None:
    """A full inbox refuses an entry; taken entries make room."""
    inbox = inbox_of("aaaa", "bbbb", 7, max_bytes=3 * FOUR_BYTES)

    refused = [inbox.add_entry("cccc"), inbox.add_entry("dddd")]
    inbox.take_entries(10_000)
    inbox.take_entries(10_000)

    assert (refused, [inbox.add_entry(each) for each in ("e" * 4, "f" * 4)]) == (
        [False, False],
        [True, True],
    )


@pytest.fixture
def reader() -> PostgresNotificationsReader:
    """A reader that is not connected."""
    settings = PostgresNotificationsSettings("", "t", "changes", max_waiting_bytes=1_000)
    return PostgresNotifications(settings).reader(SCHEMA)


async def test_reader_continues_its_position(reader: PostgresNotificationsReader) -> None:
    """A reader reports nothing before its split, then the gap at the given position."""
    before = await reader.read()
    await reader.assign(SPLIT, position=41)
    (piece,) = await reader.read()

    assert before == ()
    assert piece == SplitPiece(
        "notifications",
        41,
        changes=(GAP,),
        nbytes=100,
        silent_s=piece.silent_s,
        server=ServerIdentity(),
        requested_s=piece.requested_s,
    )


def test_pause_concerns_its_split(reader: PostgresNotificationsReader) -> None:
    """A paused split reports nothing; a pause of other splits has no effect."""

    async def main() -> None:
        await reader.assign(SPLIT, position=None)
        reader.pause({"notifications", "another"})
        paused = await reader.read()
        reader.pause({"another"})
        (piece,) = await reader.read()
        assert (paused, piece.changes) == ((), (GAP,))

    run_in_virtual_time(main())


async def test_unreadable_payloads_are_logged(reader: PostgresNotificationsReader) -> None:
    """The log has each reason once, with a count and without payload."""
    await reader.assign(SPLIT, position=None)
    with capture_logs() as logs:
        for _ in range(2):
            for payload in ("{secret", "{secret", "7"):
                reader._on_received(payload)
            (piece,) = await reader.read()

    found = [(each["event"], each["channel"], each["reason"], each["messages"]) for each in logs]
    assert piece.undecodable == 3
    assert found == [
        ("notifications.not_understood", "changes", reason, count)
        for reason, count in (
            ("not valid JSON", 2),
            ("not a notification of version 1", 1),
        )
    ]


def triggers_of() -> TriggerCheck:
    """Two triggers that were not checked yet."""
    origin = TableOrigin("shop", "Customers", table_id=16385)
    return TriggerCheck(origin, TRIGGERS, script="python -m service gen-triggers customers")


async def test_silent_server_is_given_up() -> None:
    """A session with a silent server fails at the connect timeout."""
    heard: list[str | int] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        dsn = f"postgresql://127.0.0.1:{server.getsockname()[1]}/shop"
        settings = PostgresNotificationsSettings(dsn, "t", "changes", connect_timeout_s=0.05)
        session = PostgresNotificationsSession(
            settings, SCHEMA, on_entry=heard.append, on_end=heard.clear
        )
        with pytest.raises(BackendError) as failure:
            async with asyncio.timeout(30.0):
                await session.__aenter__()

    assert (failure.value.detail, heard) == ("t: the connection attempt timed out", [])


async def test_source_is_one_unbounded_split() -> None:
    """The source has one split without a server; its reader needs one."""
    settings = PostgresNotificationsSettings(
        "postgresql://u:secret@127.0.0.1:1/shop", "t", "changes", heartbeat_timeout_s=0.25
    )
    source = PostgresNotifications(settings)

    async with source.enumerator(SCHEMA) as enumerator:
        splits = await enumerator.discover()
    with pytest.raises(BackendError, match="nothing listens at the address"):
        await source.reader(SCHEMA).__aenter__()

    assert (list(splits), enumerator.discovery_interval_s) == ([SPLIT], None)
    assert (source.is_bounded, source.reading_mode) == (False, ReadingMode.MULTIPLEXED)
    assert "secret" not in repr(settings)
    assert settings.server_settings["statement_timeout"] == "250ms"
    assert settings.server_settings["application_name"] == "sidelook listen"


def test_triggers_are_checked_by_number() -> None:
    """Triggers are found by the oid and name of their table, in any order."""
    triggers = triggers_of()

    place, function = (16385, "shop", "Customers"), (TRIGGERS.function, TRIGGERS.body)
    wanted = (["told_insert", "told_truncate"], [4, 32], [*FUNCTION_SETTINGS])
    assert triggers.arguments == (*place, *function, *wanted)
    assert [triggers.fault(rows) for rows in (ROWS, ROWS[::-1], ROWS)] == [None] * 3


@pytest.mark.parametrize(
    ("looks", "fault"),
    [
        ([GONE], MISSING.format("told_insert, told_truncate")),
        ([ROWS, [ROWS[0], GONE[1]]], MISSING.format("told_truncate")),
        (
            [ROWS, [ROWS[0], ("told_truncate", None, "2d", 7)]],
            f"triggers were recreated or disabled for a time, or {ALTERED}; rows are read again",
        ),
        ([[]], "the table was dropped or replaced; its schema will be read again"),
    ],
)
def test_missing_triggers_are_faults(
    looks: list[list[tuple[str, str | None, str, int]]], fault: str
) -> None:
    """Missing or replaced triggers, and another table, are faults at each check."""
    triggers = triggers_of()

    assert [triggers.fault(rows) for rows in looks][-1] == fault


def test_partitions_need_their_triggers() -> None:
    """A partition without triggers, and another set of partitions, are faults."""
    origin = TableOrigin("shop", "Customers", table_id=16385, is_partitioned=True)
    triggers = TriggerCheck(origin, TRIGGERS, script="gen-triggers customers")
    other = [ROWS[0], ("told_truncate", None, "2d", 7)]
    remedy = "run the output of `gen-triggers customers --partitioned`"

    assert [triggers.fault(rows) for rows in (ROWS, [GONE[0], ROWS[1]], other)] == [
        None,
        f"triggers missing on shop.p1: told_insert; {remedy}",
        f"partitions were attached or detached, {ALTERED}, or triggers changed",
    ]
