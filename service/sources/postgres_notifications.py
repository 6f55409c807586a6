"""A source of changes: what triggers of a PostgreSQL table tell by NOTIFY.

The triggers are made by the script of `trigger_sql`. Nobody keeps notifications for who does not
listen: each connection begins with the word that any row may have changed.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

import orjson

from lookup_core.changelog.notification import NotificationDecoder
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.sources.reading_mode import ReadingMode
from lookup_core.sources.split import Split
from service.sources.postgres_notifications_reader import PostgresNotificationsReader
from service.sources.postgres_notifications_session import PostgresNotificationsSettings
from service.sources.postgres_notifications_triggers import PostgresNotificationsTriggers
from service.sources.trigger_sql import trigger_names

_SPLIT = Split("notifications")


class PostgresNotifications:
    """Unbounded, of one split."""

    def __init__(self, settings: PostgresNotificationsSettings) -> None:
        self._settings = settings

    @property
    def is_bounded(self) -> bool:
        """It has no end."""
        return False

    @property
    def reading_mode(self) -> ReadingMode:
        """One reader, one split."""
        return ReadingMode.MULTIPLEXED

    def enumerator(self, schema: DimensionSchema) -> "NotificationsEnumerator":  # noqa: ARG002  of the port
        """An enumerator that connects to nothing."""
        return NotificationsEnumerator()

    def reader(self, schema: DimensionSchema) -> PostgresNotificationsReader:
        """A reader with a connection of its own."""
        settings, origin = self._settings, schema.origin
        assert origin is not None  # as every table of PostgreSQL has one
        names = trigger_names(settings.table, schema.key.names, channel=settings.channel)
        return PostgresNotificationsReader(
            settings,
            NotificationDecoder(schema, loads=orjson.loads),
            triggers=PostgresNotificationsTriggers(origin, names, script=settings.script),
        )


class NotificationsEnumerator:
    """There is one split, always the same."""

    @property
    def discovery_interval_s(self) -> float | None:
        """There is nothing to discover."""
        return None

    async def __aenter__(self) -> Self:
        """Nothing has to be opened."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Nothing has to be closed."""

    async def discover(self) -> Sequence[Split]:
        """The split."""
        return (_SPLIT,)
