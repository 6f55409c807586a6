"""The notification feed without a server: reader and trigger check."""

import asyncio
import socket

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
    PostgresNotificationsReader,
    PostgresNotificationsSettings,
)
from service.connectors.postgres.triggers import FUNCTION_SETTINGS, TableTriggers, TriggerCheck

SCHEMA = DimensionSchema(
    pa.schema({"id": pa.int32()}), pa.schema({"note": pa.utf8()}), TableOrigin("public", "t")
)
SPLIT = Split("notifications")
GAP = TableChange("notifications may have been lost before the connection was made")
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


@pytest.fixture
def reader() -> PostgresNotificationsReader:
    """A reader that is not connected."""
    settings = PostgresNotificationsSettings("", "t", "changes", max_waiting_bytes=1_000)
    return PostgresNotifications(settings).reader(SCHEMA)


def receive(reader: PostgresNotificationsReader, *entries: str | int) -> None:
    """Payloads, and heartbeats of its own as numbers, arrive."""
    for entry in entries:
        channel = "changes" if isinstance(entry, str) else "sidelook_heartbeat_7"
        reader._on_notification(None, 7, channel, entry)


async def test_reader_continues_its_position(reader: PostgresNotificationsReader) -> None:
    """A reader reports the gap at the given position."""
    await reader.assign(SPLIT, position=41)
    (piece,) = await reader.read()

    assert piece == SplitPiece(
        "notifications",
        41,
        changes=(GAP,),
        silent_s=piece.silent_s,
        server=ServerIdentity(),
        requested_s=piece.requested_s,
    )


async def test_heartbeats_prove_earlier_changes(reader: PostgresNotificationsReader) -> None:
    """A piece has payloads in their order, and the last of its heartbeats; others do not count."""
    receive(reader, "7", 5, "8", 6)
    reader._on_notification(None, 8, "sidelook_heartbeat_7", "9")
    (piece,) = await reader.read()
    receive(reader, "9")
    (later,) = await reader.read()

    assert (piece.position, piece.watermark_ms, piece.is_caught_up) == (2, 6, True)
    assert (later.position, later.watermark_ms, later.is_caught_up) == (3, NO_WATERMARK_MS, True)


async def test_pieces_are_bounded() -> None:
    """A piece ends with the payload that reaches its size; the others follow."""
    settings = PostgresNotificationsSettings("", "t", "changes")
    reader = PostgresNotifications(settings).reader(SCHEMA)
    receive(reader, "a" * 200_000, "b" * 200_000, "c")

    positions = [piece.position for _ in range(2) for piece in await reader.read()]

    assert positions == [2, 3]


async def test_surplus_of_notifications_is_a_failure(reader: PostgresNotificationsReader) -> None:
    """Payloads that exceed the bound end the reader; those that were read make room."""
    receive(reader, "a" * 600)
    await reader.read()
    receive(reader, "b" * 600)
    await reader.read()
    receive(reader, "c" * 600, "d" * 600)

    with pytest.raises(BackendError, match="t: notifications arrived faster than they were read"):
        await reader.read()


async def test_unreadable_payloads_are_logged(reader: PostgresNotificationsReader) -> None:
    """The log has each reason once, with a count and without payload."""
    with capture_logs() as logs:
        for _ in range(2):
            receive(reader, "{secret", "{secret", "7")
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
    """A reader with a silent server fails at the connect timeout."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        dsn = f"postgresql://127.0.0.1:{server.getsockname()[1]}/shop"
        settings = PostgresNotificationsSettings(dsn, "t", "changes", connect_timeout_s=0.05)
        with pytest.raises(BackendError) as failure:
            async with asyncio.timeout(30.0):
                await PostgresNotifications(settings).reader(SCHEMA).__aenter__()

    assert failure.value.detail == "t: the connection attempt timed out"


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
    assert (source.is_bounded, source.reading_mode) == (False, ReadingMode.SEQUENTIAL)
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
