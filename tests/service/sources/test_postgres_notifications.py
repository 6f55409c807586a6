"""The source of notifications without its server; `tests/integration` has the rest."""

import pyarrow as pa
import pytest

from lookup_core.dimension_schema import DimensionSchema, TableOrigin
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.sources.splits import ReadingMode, Split
from service.connectors.postgres.notifications_session import PostgresNotificationsSettings
from service.connectors.postgres.notifications_source import PostgresNotifications

SCHEMA = DimensionSchema(
    pa.schema({"id": pa.int32()}), pa.schema({"note": pa.utf8()}), TableOrigin("public", "t")
)
NOWHERE = PostgresNotificationsSettings("postgresql://127.0.0.1:1/shop", "t", "changes")


def test_source_goes_on_for_ever() -> None:
    """It has no end, and one reader for all that there is."""
    source = PostgresNotifications(NOWHERE)

    assert (source.is_bounded, source.reading_mode) == (False, ReadingMode.MULTIPLEXED)


async def test_there_is_one_split() -> None:
    """The split is known without a server, and nothing is looked for later."""
    async with PostgresNotifications(NOWHERE).enumerator(SCHEMA) as enumerator:
        splits = await enumerator.discover()

    assert (list(splits), enumerator.discovery_interval_s) == ([Split("notifications")], None)


async def test_unreachable_server_is_an_error() -> None:
    """A reader whose server is not there is not opened, and says why."""
    with pytest.raises(BackendError) as failure:
        await PostgresNotifications(NOWHERE).reader(SCHEMA).__aenter__()

    assert (failure.value.code, failure.value.detail) == (
        ErrorCode.BACKEND_UNAVAILABLE,
        "t: nothing listens at the address of the DSN",
    )
