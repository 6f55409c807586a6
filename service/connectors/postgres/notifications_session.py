"""PostgreSQL session that listens to a channel, and to heartbeats that it sends to itself.

It is not from the pool, whose reset would end LISTEN. Each heartbeat also checks the triggers.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import asyncpg
from asyncpg.connect_utils import SessionAttribute

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.freshness.server_identity import ServerIdentity
from service.connectors.postgres.connections import Connection
from service.connectors.postgres.dedicated_sessions import DedicatedSession
from service.connectors.postgres.errors import (
    PoolerParameterError,
    mapped_errors,
    mapped_parameters,
    own_statements,
)
from service.connectors.postgres.host_names import HOST_NAMES
from service.connectors.postgres.identification import Identification
from service.connectors.postgres.session_settings import READ_COMMITTED, fixed_settings
from service.connectors.postgres.settings import CONNECT_TIMEOUT_S
from service.connectors.postgres.table_version import TABLE_VERSION, TriggerCheck
from service.connectors.postgres.triggers import table_triggers

# Without the interval, a session whose client is gone would stay while it waits for its commit.
_INTERVAL = {"client_connection_check_interval": "250"}
_SESSION = f"""
SELECT pg_catalog.pg_backend_pid(), ({fixed_settings(_INTERVAL, is_local=False)})
"""
_CLOCK = """
SELECT pg_catalog.floor(
    pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000)::bigint::text
"""
_POOLED = "the DSN leads to a pooler; LISTEN needs the address of the server itself"
_SUBSCRIBED = (
    "is filled by a subscription, which fires no triggers of statements; follow the publisher with"
    " refresh.changelog, or remove refresh.listen"
)
_HEARTBEAT = "SELECT pg_catalog.pg_notify($1, $2)"


@dataclass(frozen=True, slots=True)
class PostgresNotificationsSettings:
    """Connection, table and channel; any role may listen."""

    dsn: str = field(repr=False)  # may hold a password
    table: str  # parsed as in SQL
    channel: str
    script: str = "gen-triggers"  # the command that prints the triggers' SQL, for messages
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    heartbeat_interval_s: float = 5.0
    heartbeat_timeout_s: float = 15.0  # then the connection is closed
    max_waiting_bytes: int = 8 * 2**20  # of unread payloads
    # Read for each session if the password is rotated; `dsn` is the value at startup.
    dsn_now: Callable[[], str] | None = field(default=None, repr=False, compare=False)

    def current_dsn(self) -> str:
        """The DSN with the current password."""
        return self.dsn if self.dsn_now is None else self.dsn_now()

    @property
    def server_settings(self) -> dict[str, str]:
        """Startup parameters of the session.

        Keepalives end it soon after its client is gone: an unread session would keep the
        notifications of all other sessions in the server's queue.
        """
        return {
            "application_name": "sidelook listen",
            **READ_COMMITTED,
            "default_transaction_read_only": "on",
            "synchronous_commit": "off",  # a lost heartbeat does no harm
            "statement_timeout": f"{round(self.heartbeat_timeout_s * 1000)}ms",
            "tcp_keepalives_idle": "10",
            "tcp_keepalives_interval": "10",
            "tcp_keepalives_count": "3",
            "tcp_user_timeout": "30000",
        }


class PostgresNotificationsSession(DedicatedSession):
    """Listens while it is open.

    `hear` receives payloads, and heartbeats as milliseconds of the server's clock. `on_end` is
    called from the event loop when the connection is lost.
    """

    def __init__(
        self,
        settings: PostgresNotificationsSettings,
        schema: DimensionSchema,
        *,
        hear: Callable[[str | int], None],
        on_end: Callable[[], None],
    ) -> None:
        assert schema.origin is not None  # every table of PostgreSQL has one
        super().__init__(settings.table)
        triggers = table_triggers(
            settings.table,
            schema.key.names,
            channel=settings.channel,
            is_partitioned=schema.origin.is_partitioned,
        )
        self.server = ServerIdentity()
        # Replication fires the triggers of rows that a partitioned table has.
        is_doubtful = schema.origin.is_subscribed and not schema.origin.is_partitioned
        self.doubt = f"{settings.table} {_SUBSCRIBED}" if is_doubtful else None
        self.last_transaction_id = 0  # of the server when listening began
        self._settings = settings
        self._triggers = TriggerCheck(schema.origin, triggers, script=settings.script)
        self._hear = hear
        self._on_end = on_end
        self._heartbeat_channel = ""

    async def __aenter__(self) -> Self:
        """Connect and listen; raises BackendError in time, also if triggers are missing."""
        with own_statements():
            async with self.bounded(self._settings.connect_timeout_s):
                self._connection = await self._connected()
                await self._listen(self._connection)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connection; terminate it if the server does not answer."""
        assert self._connection is not None
        self._connection.remove_termination_listener(self._end)
        await self.close()

    async def beat(self) -> None:
        """Send a heartbeat, unless changes may be lost because the triggers changed.

        Raises BackendError within the heartbeat timeout; `backend_rejected` for changed triggers.
        """
        assert self._connection is not None
        try:
            with mapped_errors(self._settings.table):
                async with asyncio.timeout(self._settings.heartbeat_timeout_s):
                    time_ms = await self._connection.fetchval(_CLOCK)
                    arguments = self._triggers.arguments
                    rows = await self._connection.fetch(TABLE_VERSION, *arguments)
                    fault = self._triggers.fault(rows)
                    if fault is None:
                        channel = self._heartbeat_channel
                        await self._connection.execute(_HEARTBEAT, channel, time_ms)
        except BackendError as error:
            self._terminate()
            reason = "the listening session received no heartbeat"
            raise self.failure(ErrorCode.CONNECTION_LOST, reason) from error
        if fault is not None:
            raise self.failure(ErrorCode.BACKEND_REJECTED, fault)

    async def _connected(self) -> Connection:
        try:
            # A DSN for lookups on a standby may list the primary, too.
            with mapped_parameters():
                return await asyncpg.connect(
                    await HOST_NAMES.resolved_dsn(self._settings),
                    server_settings=self._settings.server_settings,
                    target_session_attrs=SessionAttribute.primary,
                )
        except asyncpg.TargetServerAttributeNotMatched as error:
            reason = "LISTEN needs the primary server, and the DSN leads to a standby"
            raise self.failure(ErrorCode.BACKEND_UNAVAILABLE, reason) from error
        except PoolerParameterError as error:
            raise self.failure(ErrorCode.BACKEND_REJECTED, _POOLED) from error

    async def _listen(self, connection: Connection) -> None:
        process = connection.get_server_pid()
        if await connection.fetchval(_SESSION) != process:
            # A pooler would lend the session to other clients, and drop its notifications.
            raise self.failure(ErrorCode.BACKEND_REJECTED, _POOLED)
        # A channel per session: sidecars must not receive each other's heartbeats.
        self._heartbeat_channel = f"sidelook_heartbeat_{process}"
        connection.add_termination_listener(self._end)
        await connection.add_listener(self._settings.channel, self._on_payload)
        await connection.add_listener(self._heartbeat_channel, self._on_heartbeat)
        rows = await connection.fetch(TABLE_VERSION, *self._triggers.arguments)
        if (fault := self._triggers.fault(rows)) is not None:
            raise self.failure(ErrorCode.BACKEND_REJECTED, fault)
        self.server = await Identification().read(connection.fetch)
        # Changes before LISTEN, also while triggers were disabled, are of this transaction or
        # earlier ones. A lookup on a lagging standby may still return older rows.
        self.last_transaction_id = rows[0]["last_transaction_id"]

    def _on_payload(self, _connection: object, _process: int, _channel: str, payload: Any) -> None:  # noqa: ANN401  as in asyncpg
        self._hear(str(payload))

    def _on_heartbeat(self, _connection: object, process: int, channel: str, payload: Any) -> None:  # noqa: ANN401  as in asyncpg
        if channel == f"sidelook_heartbeat_{process}":  # sent by this session
            self._hear(int(payload))

    def _end(self, _connection: object) -> None:
        self._on_end()
