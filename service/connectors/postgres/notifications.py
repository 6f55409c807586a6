"""PostgreSQL notification source: changes that triggers publish by NOTIFY, in order.

A reader's session listens to a channel, and to heartbeats that it sends to itself. It is not from
the pool, whose reset would end LISTEN. Each heartbeat also checks the triggers.
"""

import asyncio
import sys
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import asyncpg
import orjson
import structlog
from asyncpg.connect_utils import SessionAttribute

from lookup_core.changelog.change_decoder import TableChange
from lookup_core.changelog.notification import NotificationDecoder
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.event_time.watermark_valve import NO_WATERMARK_MS
from lookup_core.freshness.server_identity import ServerIdentity
from lookup_core.rate_limits import EventRateLimit
from lookup_core.sources.splits import Split
from service.connectors.ports.resource import Resource
from service.connectors.ports.source import FixedSplits, Source, SplitPiece, SplitReader
from service.connectors.postgres.errors import (
    PoolerParameterError,
    mapped_errors,
    own_statements,
)
from service.connectors.postgres.sessions import (
    CONNECT_TIMEOUT_S,
    READ_COMMITTED,
    Connection,
    DedicatedSession,
    Identification,
    connected,
    fixed_settings,
)
from service.connectors.postgres.table import TABLE_VERSION
from service.connectors.postgres.triggers import TriggerCheck, table_triggers

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
_HEARTBEATS = "sidelook_heartbeat_"  # and the process of the session
log = structlog.get_logger()
_JUST_CONNECTED = "notifications may have been lost before the connection was made"
_LOW_HALF = 0xFFFFFFFF
_WAIT_S = 1.0
_PIECE_BYTES = 256 * 2**10  # payloads that are decoded in a few milliseconds
SPLIT = Split("notifications")

# A payload; or a heartbeat: ms of the server's clock, and when it was sent.
_Entry: TypeAlias = str | tuple[int, float]


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
    max_waiting_bytes: int = 8 * 2**20  # payloads that are not read yet
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


class PostgresNotifications(Source):
    """Changes of a table from now on, without end; one split."""

    def __init__(self, settings: PostgresNotificationsSettings) -> None:
        self._settings = settings

    def enumerator(self, schema: DimensionSchema) -> FixedSplits:
        """An enumerator, which needs no connection."""
        del schema  # there is one split for each table
        return FixedSplits(SPLIT)

    def reader(self, schema: DimensionSchema) -> "PostgresNotificationsReader":
        """A reader with its own connection."""
        return PostgresNotificationsReader(self._settings, schema)


class PostgresNotificationsReader(Resource, SplitReader):
    """Listens while it is open.

    It fails when its connection is lost, and the next reader reports the gap.
    """

    def __init__(self, settings: PostgresNotificationsSettings, schema: DimensionSchema) -> None:
        origin = schema.table_origin
        triggers = table_triggers(
            settings.table,
            schema.key.names,
            channel=settings.channel,
            is_partitioned=origin.is_partitioned,
        )
        # Replication fires the triggers of rows that a partitioned table has.
        is_doubtful = origin.is_subscribed and not origin.is_partitioned
        self._doubt = f"{settings.table} {_SUBSCRIBED}" if is_doubtful else None
        self._settings = settings
        self._decoder = NotificationDecoder(schema, loads=orjson.loads)
        self._triggers = TriggerCheck(origin, triggers, script=settings.script)
        self._session = DedicatedSession(settings.table)
        self._server = ServerIdentity()
        self._entries: deque[_Entry] = deque()  # in the order of arrival
        self._waiting_bytes = 0
        self._gap: TableChange | None = TableChange(_JUST_CONNECTED)  # before the entries
        self._failure: BackendError | None = None
        self._has_news = asyncio.Event()
        self._heartbeat_is_due = asyncio.Event()
        self._received_at_s = self._sent_at_s = self._requested_at_s = 0.0
        self._position = 0  # payloads that were returned
        self._is_caught_up = False
        self._warnings = EventRateLimit()

    async def open(self, stack: AsyncExitStack) -> None:
        """Connect, listen, and start heartbeats.

        Raises BackendError in time, also if triggers are missing.
        """
        stack.push_async_callback(self._session.close)
        with own_statements():
            async with self._session.bounded(self._settings.connect_timeout_s):
                await self._listen(await self._session.connect(self._connected()))
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        self._received_at_s = self._requested_at_s = asyncio.get_running_loop().time()
        stack.callback(tasks.create_task(self._send_heartbeats()).cancel)

    async def assign(self, split: Split, *, position: int | None) -> None:
        """Read from now on, whatever the position: the server keeps no notifications."""
        del split
        self._position = position or 0

    async def read(self) -> Sequence[SplitPiece]:
        """New changes, after at most a second; raises BackendError."""
        if self._failure is None and self._gap is None and not self._entries:
            self._has_news.clear()
            with suppress(TimeoutError):  # the piece reports how long the session is silent
                async with asyncio.timeout(_WAIT_S):
                    await self._has_news.wait()
        if self._failure is not None:
            raise self._failure
        payloads, watermark_ms = self._take_payloads(_PIECE_BYTES)
        decoded = self._decoder.decode(payloads)
        self._log_faults(decoded.faults.values())
        gap, self._gap = self._gap, None
        self._position += len(payloads)
        now = asyncio.get_running_loop().time()
        piece = SplitPiece(
            SPLIT.id,
            self._position,
            changes=(*(() if gap is None else (gap,)), *decoded.changes),
            watermark_ms=watermark_ms,
            silent_s=now - self._received_at_s,
            requested_s=now - self._requested_at_s,
            is_caught_up=self._is_caught_up,
            server=self._server,
            ignored=decoded.ignored,
            undecodable=len(decoded.faults),
            doubt=self._doubt,
        )
        return (piece,)

    def request_sign(self) -> None:
        """Send the next heartbeat now."""
        self._heartbeat_is_due.set()

    async def _connected(self) -> Connection:
        try:
            # A DSN for lookups on a standby may list the primary, too.
            return await connected(
                self._settings,
                server_settings=self._settings.server_settings,
                target_session_attrs=SessionAttribute.primary,
            )
        except asyncpg.TargetServerAttributeNotMatched as error:
            reason = "LISTEN needs the primary server, and the DSN leads to a standby"
            raise self._session.failure(ErrorCode.BACKEND_UNAVAILABLE, reason) from error
        except PoolerParameterError as error:
            raise self._session.failure(ErrorCode.BACKEND_REJECTED, _POOLED) from error

    async def _listen(self, connection: Connection) -> None:
        process = connection.get_server_pid()
        if await connection.fetchval(_SESSION) != process:
            # A pooler would lend the session to other clients, and drop its notifications.
            raise self._session.failure(ErrorCode.BACKEND_REJECTED, _POOLED)
        connection.add_termination_listener(lambda _: self._lose("the listening session was lost"))
        # A channel per session: sidecars must not receive each other's heartbeats.
        for channel in (self._settings.channel, f"{_HEARTBEATS}{process}"):
            await connection.add_listener(channel, self._on_notification)
        rows = await connection.fetch(TABLE_VERSION, *self._triggers.arguments)
        if (fault := self._triggers.fault(rows)) is not None:
            raise self._session.failure(ErrorCode.BACKEND_REJECTED, fault)
        self._server = await Identification().read(connection.fetch)
        # Changes before LISTEN, also while triggers were disabled, are of this transaction or
        # earlier ones. A lookup on a lagging standby may still return older rows.
        last_id = rows[0]["last_transaction_id"] & _LOW_HALF
        self._gap = TableChange(_JUST_CONNECTED, last_id, is_gap=True)

    async def _send_heartbeats(self) -> None:
        while self._failure is None:
            self._heartbeat_is_due.clear()
            self._sent_at_s = asyncio.get_running_loop().time()
            try:
                await self._send_heartbeat(self._session.connection)
            except BackendError as error:
                self._fail(error)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.heartbeat_interval_s):
                    await self._heartbeat_is_due.wait()

    async def _send_heartbeat(self, connection: Connection) -> None:
        """Send a heartbeat, unless changes may be lost because the triggers changed.

        Raises BackendError within the heartbeat timeout; `backend_rejected` for changed triggers.
        """
        try:
            with mapped_errors(self._settings.table):
                async with asyncio.timeout(self._settings.heartbeat_timeout_s):
                    time_ms = await connection.fetchval(_CLOCK)
                    rows = await connection.fetch(TABLE_VERSION, *self._triggers.arguments)
                    fault = self._triggers.fault(rows)
                    if fault is None:
                        channel = f"{_HEARTBEATS}{connection.get_server_pid()}"
                        await connection.execute(_HEARTBEAT, channel, time_ms)
        except BackendError as error:
            self._session.terminate()
            reason = "the listening session received no heartbeat"
            raise self._session.failure(ErrorCode.CONNECTION_LOST, reason) from error
        if fault is not None:
            raise self._session.failure(ErrorCode.BACKEND_REJECTED, fault)

    def _on_notification(self, _: object, process: int, channel: str, payload: Any) -> None:  # noqa: ANN401  as in asyncpg
        if channel == self._settings.channel:
            self._add_entry(str(payload))
        elif channel == f"{_HEARTBEATS}{process}":  # sent by this session, before its beat ends
            self._add_entry((int(payload), self._sent_at_s))

    def _add_entry(self, entry: _Entry) -> None:
        self._received_at_s = asyncio.get_running_loop().time()
        self._waiting_bytes += sys.getsizeof(entry)
        self._entries.append(entry)
        if self._waiting_bytes > self._settings.max_waiting_bytes:
            # The next session limits the gap by its last transaction.
            self._lose("notifications arrived faster than they were read")
        self._has_news.set()

    def _take_payloads(self, max_bytes: int) -> tuple[list[str], int]:
        """Take entries up to the one that reaches `max_bytes`; notes the last heartbeat."""
        payloads: list[str] = []
        watermark_ms = NO_WATERMARK_MS
        while self._entries and max_bytes > 0:
            entry = self._entries.popleft()
            self._waiting_bytes -= sys.getsizeof(entry)
            max_bytes -= sys.getsizeof(entry)
            if isinstance(entry, str):
                payloads.append(entry)
            else:
                watermark_ms, self._requested_at_s = entry
                self._is_caught_up = True
        return payloads, watermark_ms

    def _log_faults(self, reasons: Collection[str]) -> None:
        now = asyncio.get_running_loop().time()
        for reason, count in Counter(reasons).items():
            if self._warnings.is_due(reason, now):  # without payloads, which hold keys
                log.warning(
                    "notifications.not_understood",
                    channel=self._settings.channel,
                    reason=reason,
                    messages=count,
                )

    def _lose(self, reason: str) -> None:
        self._fail(self._session.failure(ErrorCode.CONNECTION_LOST, reason))

    def _fail(self, error: BackendError) -> None:
        self._failure = self._failure or error
        self._has_news.set()
        self._heartbeat_is_due.set()  # none follows
