"""The notification feed without a server: reader and trigger check."""

import asyncio
import socket

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from lookup_core.dimension_schema import DimensionSchema, TableOrigin
from lookup_core.errors import BackendError
from lookup_core.event_time.watermark_valve import NO_WATERMARK_MS
from lookup_core.sources.splits import ReadingMode, Split
from service.connectors.postgres.notifications import (
    PostgresNotifications,
    PostgresNotificationsReader,
    PostgresNotificationsSettings,
)

SCHEMA = DimensionSchema(
    pa.schema({"id": pa.int32()}), pa.schema({"note": pa.utf8()}), TableOrigin("public", "t")
)
SPLIT = Split("notifications")


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
