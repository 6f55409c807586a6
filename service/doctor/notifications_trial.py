"""Whether a sidecar would hear of a table's changes: it listens, and notifies itself.

By the session that the sidecar itself listens with; nobody else hears its heartbeat.
"""

import asyncio

from lookup_core.errors import BackendError
from service.backends.postgres_table import PostgresTable
from service.doctor.finding import Finding, Matter
from service.doctor.store_trouble import trouble
from service.sources.postgres_notifications_session import (
    PostgresNotificationsSession,
    PostgresNotificationsSettings,
)
from service.sources.postgres_notifications_triggers import PostgresNotificationsTriggers
from service.sources.trigger_sql import trigger_names

_HEARTBEAT_TIMEOUT_S = 2.0


async def try_notifications(
    matter: Matter, settings: PostgresNotificationsSettings, table: PostgresTable
) -> Finding:
    """Listen, look for the triggers, and wait for a heartbeat of one's own."""
    heard = asyncio.Event()
    names = trigger_names(settings.table, table.schema.key.names, channel=settings.channel)
    origin = table.schema.origin
    assert origin is not None  # as every table of PostgreSQL has one
    session = PostgresNotificationsSession(
        settings,
        PostgresNotificationsTriggers(origin, names, script=settings.script),
        hear=lambda told: heard.set() if isinstance(told, int) else None,
        on_end=lambda: None,
    )
    try:
        async with session, asyncio.timeout(_HEARTBEAT_TIMEOUT_S):
            await session.beat()
            await heard.wait()
    except BackendError as error:
        return trouble(matter, error)
    except TimeoutError:
        return matter.error(
            "a notification to itself did not come back in time",
            "name the server itself in the DSN; see that nothing between holds its answers back",
        )
    return matter.ok(f"triggers tell changes on channel {settings.channel}, which is heard")
