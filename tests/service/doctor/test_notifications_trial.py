"""Listening on trial; a real server is listened to in tests/integration/test_doctor_postgres.py."""

import pyarrow as pa

from service.connectors.postgres.notifications_session import PostgresNotificationsSettings
from service.connectors.postgres.table import KeySending, PostgresTable
from service.doctor.backends.table_check import try_notifications
from tests.service.doctor.findings import MATTER

TABLE = PostgresTable("public", "t", (("id", KeySending(pa.field("id", pa.int32()), "int4")),), ())


async def test_server_that_is_away_cannot_be_listened_to() -> None:
    """It is an error, and no exception."""
    settings = PostgresNotificationsSettings("postgresql://me@127.0.0.1:1/d", "public.t", "told")

    finding = await try_notifications(MATTER, settings, TABLE)

    assert finding.severity == "error"
    assert finding.message == "public.t: nothing listens at the address of the DSN"
