"""The reader of notifications without a connection; `tests/integration` has the rest."""

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from lookup_core.changelog.change_decoder import TableChange
from lookup_core.dimension_schema import DimensionSchema, TableOrigin
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.sources.splits import Split
from service.connectors.ports.source import SplitPiece
from service.connectors.postgres.notifications_session import PostgresNotificationsSettings
from service.connectors.postgres.notifications_source import (
    PostgresNotifications,
    PostgresNotificationsReader,
)

SCHEMA = DimensionSchema(
    pa.schema({"id": pa.int32()}), pa.schema({"note": pa.utf8()}), TableOrigin("public", "t")
)
GAP = TableChange("notifications may have been lost before the connection was made")


@pytest.fixture
def reader() -> PostgresNotificationsReader:
    """A reader that is not connected."""
    settings = PostgresNotificationsSettings("", "t", "changes", max_waiting_bytes=1_000)
    return PostgresNotifications(settings).reader(SCHEMA)


async def test_reads_nothing_without_a_split(reader: PostgresNotificationsReader) -> None:
    """Nothing is told before the split was given, and nothing is lost by asking."""
    before = await reader.read()
    await reader.assign(Split("notifications"), position=None)
    (after,) = await reader.read()

    assert (before, after.changes) == ((), (GAP,))


async def test_position_goes_on(reader: PostgresNotificationsReader) -> None:
    """A position counts on from the one of the reader before; the gap itself does not count."""
    await reader.assign(Split("notifications"), position=41)
    (piece,) = await reader.read()

    expected = SplitPiece("notifications", 41, changes=(GAP,), nbytes=100, silent_s=piece.silent_s)
    assert piece == expected


async def test_pause_concerns_its_split(reader: PostgresNotificationsReader) -> None:
    """Other splits may be paused; its own one tells nothing until it may again."""
    await reader.assign(Split("notifications"), position=None)

    reader.pause({"notifications", "another"})
    paused = await reader.read()
    reader.pause({"another"})
    (piece,) = await reader.read()

    assert (paused, piece.changes) == ((), (GAP,))


async def test_unreadable_payloads_are_logged(reader: PostgresNotificationsReader) -> None:
    """Each reason once in a while, with how many had it, and without what was in them."""
    await reader.assign(Split("notifications"), position=None)
    with capture_logs() as logs:
        for _ in range(2):
            for payload in ("{secret", "{secret", "7"):
                reader._on_heard(payload)
            (piece,) = await reader.read()

    told = [(each["event"], each["channel"], each["reason"], each["messages"]) for each in logs]
    assert piece.undecodable == 3
    assert told == [
        ("notifications.not_understood", "changes", "it is not JSON", 2),
        (
            *("notifications.not_understood", "changes"),
            *("it is no notification of a version that is known here", 1),
        ),
    ]


async def test_too_many_payloads_end_it(reader: PostgresNotificationsReader) -> None:
    """What it could not keep its successor knows to be lost, so that it tells nothing more."""
    await reader.assign(Split("notifications"), position=None)
    for _ in range(2):
        reader._on_heard("x" * 600)

    with pytest.raises(BackendError) as failure:
        await reader.read()

    assert (failure.value.code, failure.value.detail) == (
        ErrorCode.CONNECTION_LOST,
        "t: more notifications came than were read",
    )
