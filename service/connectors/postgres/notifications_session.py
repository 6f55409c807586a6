"""A session of its own that listens to a channel, and to itself, to see that it still hears.

With each heartbeat it looks whether there still are triggers to be told by.

Not of the pool: there a session forgets what it listens to when it is given back. What is heard is
handed on as it comes; who reads it stands in `postgres_notifications_reader`.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import asyncpg
from asyncpg.connect_utils import SessionAttribute

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.postgres.connections import close_session
from service.connectors.postgres.errors import mapped_errors
from service.connectors.postgres.triggers import TRIGGERS, TriggerCheck

# Else a session that waits for its commit would stay when its client has given it up.
_GREETING = """
SELECT pg_catalog.pg_backend_pid(),
       CASE WHEN pg_catalog.current_setting('server_version_num')::int >= 140000
            THEN pg_catalog.set_config('client_connection_check_interval', '250ms', false) END
"""
# Whatever has changed before it listens was done by this transaction of the primary, or an earlier
# one: a standby that lags may show what was before.
_LAST_TRANSACTION = """
SELECT pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::bigint - 1
"""
_CLOCK = """
SELECT pg_catalog.floor(
    pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000)::bigint::text
"""
_HEARTBEAT = "SELECT pg_catalog.pg_notify($1, $2)"


@dataclass(frozen=True, slots=True)
class PostgresNotificationsSettings:
    """Whom to listen to; the DSN is that of the table, and any role may listen."""

    dsn: str = field(repr=False)  # may hold a password
    table: str  # as SQL reads it
    channel: str
    script: str = "gen-triggers"  # the command that prints what makes the triggers; for people
    connect_timeout_s: float = 3.0
    heartbeat_interval_s: float = 5.0
    heartbeat_timeout_s: float = 15.0  # then the connection is given up
    max_waiting_bytes: int = 8 * 2**20  # of payloads that nobody has read yet
    # For each session anew, where its password may be rotated; `dsn` is what it was at first.
    dsn_now: Callable[[], str] | None = field(default=None, repr=False, compare=False)

    def current_dsn(self) -> str:
        """The address as it is now."""
        return self.dsn if self.dsn_now is None else self.dsn_now()

    @property
    def server_settings(self) -> dict[str, str]:
        """What the session starts with.

        The server ends it soon when the client is gone: a session that hears nothing any more keeps
        the notifications of all others from being dropped.
        """
        return {
            "application_name": "sidelook listen",
            "default_transaction_read_only": "on",
            "synchronous_commit": "off",  # a heartbeat is nothing that could be lost
            "statement_timeout": f"{round(self.heartbeat_timeout_s * 1000)}ms",
            "tcp_keepalives_idle": "10",
            "tcp_keepalives_interval": "10",
            "tcp_keepalives_count": "3",
            "tcp_user_timeout": "30000",
        }


class PostgresNotificationsSession:
    """Listens while it is open; then `hear` gets payloads, and heartbeats as the server's ms.

    `on_end` is called, from the event loop, when the connection is gone.
    """

    def __init__(
        self,
        settings: PostgresNotificationsSettings,
        triggers: TriggerCheck,
        *,
        hear: Callable[[str | int], None],
        on_end: Callable[[], None],
    ) -> None:
        self.last_transaction_id = 0  # of the server, at the moment when it began to listen
        self._settings = settings
        self._triggers = triggers
        self._hear = hear
        self._on_end = on_end
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._heartbeat_channel = ""

    async def __aenter__(self) -> Self:
        """Connect and listen; raises BackendError within the connect timeout.

        It is one also that nothing would be told, because triggers are missing.
        """
        try:
            with mapped_errors(self._settings.table):
                async with asyncio.timeout(self._settings.connect_timeout_s):
                    self._connection = await self._connected()
                    await self._listen(self._connection)
        except BaseException:
            self._terminate()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Say goodbye; a server that does not answer is left without."""
        assert self._connection is not None
        self._connection.remove_termination_listener(self._end)
        await close_session(self._connection)

    async def beat(self) -> None:
        """Notify itself; raises BackendError after the heartbeat timeout at the latest.

        It is one also that the triggers are not what they were when the session began.
        """
        assert self._connection is not None
        try:
            with mapped_errors(self._settings.table):
                async with asyncio.timeout(self._settings.heartbeat_timeout_s):
                    fault = await self._notify(self._connection)
        except BackendError as error:
            self._terminate()
            reason = "no heartbeat came back from the session that listens"
            raise self._failure(ErrorCode.CONNECTION_LOST, reason) from error
        if fault is not None:
            raise self._failure(ErrorCode.BACKEND_REJECTED, fault)

    async def _connected(self) -> "asyncpg.Connection[asyncpg.Record]":
        try:
            # Also where lookups go to a standby, if the DSN names the primary besides.
            return await asyncpg.connect(
                self._settings.current_dsn(),
                server_settings=self._settings.server_settings,
                target_session_attrs=SessionAttribute.primary,
            )
        except asyncpg.TargetServerAttributeNotMatched as error:
            reason = "only the primary server can be listened to, and the DSN leads to a standby"
            raise self._failure(ErrorCode.BACKEND_UNAVAILABLE, reason) from error

    async def _listen(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        process = connection.get_server_pid()
        if await connection.fetchval(_GREETING) != process:
            # It would give the session to others, and what it is told meanwhile to nobody.
            reason = "the DSN leads to a pooler; to listen, name the server itself"
            raise self._failure(ErrorCode.BACKEND_REJECTED, reason)
        # Its own channel: else each sidecar would hear the heartbeats of all others.
        self._heartbeat_channel = f"sidelook_heartbeat_{process}"
        connection.add_termination_listener(self._end)
        await connection.add_listener(self._settings.channel, self._on_payload)
        await connection.add_listener(self._heartbeat_channel, self._on_heartbeat)
        fault = await self._fault(connection)
        if fault is not None:
            raise self._failure(ErrorCode.BACKEND_REJECTED, fault)
        # Behind the look: who switched triggers off till then is among those before it.
        self.last_transaction_id = await connection.fetchval(_LAST_TRANSACTION)

    async def _notify(self, connection: "asyncpg.Connection[asyncpg.Record]") -> str | None:
        """Send a heartbeat; if not all is told that is older than it, none, but the reason."""
        time_ms = await connection.fetchval(_CLOCK)
        fault = await self._fault(connection)
        if fault is None:
            await connection.execute(_HEARTBEAT, self._heartbeat_channel, time_ms)
        return fault

    async def _fault(self, connection: "asyncpg.Connection[asyncpg.Record]") -> str | None:
        return self._triggers.fault(await connection.fetch(TRIGGERS, *self._triggers.arguments))

    def _on_payload(self, _connection: object, _process: int, _channel: str, payload: Any) -> None:  # noqa: ANN401  as asyncpg has it
        self._hear(str(payload))

    def _on_heartbeat(self, _connection: object, process: int, channel: str, payload: Any) -> None:  # noqa: ANN401  as asyncpg has it
        if channel == f"sidelook_heartbeat_{process}":  # nobody else may speak for it
            self._hear(int(payload))

    def _end(self, _connection: object) -> None:
        self._on_end()

    def _terminate(self) -> None:
        if self._connection is not None:
            self._connection.terminate()

    def _failure(self, code: ErrorCode, reason: str) -> BackendError:
        return BackendError(code, f"{self._settings.table}: {reason}")
