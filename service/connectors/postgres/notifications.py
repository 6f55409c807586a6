"""PostgreSQL notification source: changes that triggers publish by NOTIFY, in order.

Its session listens to a channel, and to heartbeats that it sends to itself. It is not from the
pool, whose reset would end LISTEN. Each heartbeat also checks the triggers.
"""

import asyncio
import sys
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

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
from lookup_core.sources.splits import ReadingMode, Split
from service.connectors.ports.source import SplitEnumerator, SplitPiece, SplitReader
from service.connectors.postgres.errors import (
    PoolerParameterError,
    mapped_errors,
    mapped_parameters,
    own_statements,
)
from service.connectors.postgres.sessions import (
    CONNECT_TIMEOUT_S,
    READ_COMMITTED,
    Connection,
    DedicatedSession,
    Identification,
    fixed_settings,
)
from service.connectors.postgres.table import TABLE_VERSION
from service.connectors.postgres.triggers import TriggerCheck, table_triggers
from service.postgres_dsn import HOST_NAMES

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
log = structlog.get_logger()
_JUST_CONNECTED = "notifications may have been lost before the connection was made"
_LOW_HALF = 0xFFFFFFFF
_WAIT_S = 1.0
_PIECE_BYTES = 256 * 2**10  # payloads that are decoded in a few milliseconds
_CHANGE_BYTES = 100  # about, for a change without its columns
_SPLIT = Split("notifications")


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


class PostgresNotificationsSession(DedicatedSession):
    """Listens while it is open.

    `on_entry` receives payloads, and heartbeats as milliseconds of the server's clock. `on_end` is
    called from the event loop when the connection is lost.
    """

    def __init__(
        self,
        settings: PostgresNotificationsSettings,
        schema: DimensionSchema,
        *,
        on_entry: Callable[[str | int], None],
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
        self.last_transaction_id = 0  # when listening began
        self._settings = settings
        self._triggers = TriggerCheck(schema.origin, triggers, script=settings.script)
        self._on_entry = on_entry
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
        self.connection.remove_termination_listener(self._end)
        await self.close()

    async def send_heartbeat(self) -> None:
        """Send a heartbeat, unless changes may be lost because the triggers changed.

        Raises BackendError within the heartbeat timeout; `backend_rejected` for changed triggers.
        """
        try:
            with mapped_errors(self._settings.table):
                async with asyncio.timeout(self._settings.heartbeat_timeout_s):
                    time_ms = await self.connection.fetchval(_CLOCK)
                    arguments = self._triggers.arguments
                    rows = await self.connection.fetch(TABLE_VERSION, *arguments)
                    fault = self._triggers.fault(rows)
                    if fault is None:
                        channel = self._heartbeat_channel
                        await self.connection.execute(_HEARTBEAT, channel, time_ms)
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
        self._on_entry(str(payload))

    def _on_heartbeat(self, _connection: object, process: int, channel: str, payload: Any) -> None:  # noqa: ANN401  as in asyncpg
        if channel == f"sidelook_heartbeat_{process}":  # sent by this session
            self._on_entry(int(payload))

    def _end(self, _connection: object) -> None:
        self._on_end()


class PostgresNotifications:
    """Changes of a table from now on, without end; one split."""

    is_bounded = False
    reading_mode = ReadingMode.MULTIPLEXED

    def __init__(self, settings: PostgresNotificationsSettings) -> None:
        self._settings = settings

    def enumerator(self, schema: DimensionSchema) -> "NotificationsEnumerator":
        """An enumerator, which needs no connection."""
        del schema  # there is one split for each table
        return NotificationsEnumerator()

    def reader(self, schema: DimensionSchema) -> "PostgresNotificationsReader":
        """A reader with its own connection."""
        return PostgresNotificationsReader(self._settings, schema)


class NotificationsEnumerator(SplitEnumerator):
    """Always lists the same split."""

    discovery_interval_s = None

    async def __aexit__(self, *_: object) -> None:
        """Nothing to close."""

    async def discover(self) -> Sequence[Split]:
        """The split."""
        return (_SPLIT,)


@dataclass(frozen=True, slots=True)
class Taken:
    """Entries of an inbox in order of arrival."""

    payloads: Sequence[str]
    gap: TableChange | None  # before these payloads
    heartbeat_ms: int  # the server's clock at the last heartbeat, or NO_WATERMARK_MS


class PostgresNotificationsInbox:
    """Payloads and heartbeats, bounded in bytes, after a gap before the connection."""

    def __init__(self, *, max_bytes: int) -> None:
        self._gap: TableChange | None = TableChange(_JUST_CONNECTED)
        self._max_bytes = max_bytes
        self._entries: deque[str | int] = deque()  # payloads, and heartbeats in ms
        self._nbytes = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to take."""
        return self._gap is None and not self._entries

    def on_connected(self, last_transaction_id: int) -> None:
        """Limit the gap to transactions of the primary up to this one."""
        self._gap = TableChange(_JUST_CONNECTED, last_transaction_id & _LOW_HALF, is_gap=True)

    def add_entry(self, entry: str | int) -> bool:
        """Append a payload or a heartbeat; False, and no change, if it does not fit."""
        size = sys.getsizeof(entry)
        if self._nbytes + size > self._max_bytes:
            return False
        self._entries.append(entry)
        self._nbytes += size
        return True

    def take_entries(self, max_bytes: int) -> Taken:
        """Remove entries up to the one that reaches `max_bytes`."""
        gap, self._gap = self._gap, None
        payloads: list[str] = []
        heartbeat_ms, room = NO_WATERMARK_MS, max_bytes
        while self._entries and room > 0:
            entry = self._entries.popleft()
            self._nbytes -= sys.getsizeof(entry)
            room -= sys.getsizeof(entry)
            if isinstance(entry, str):
                payloads.append(entry)
            else:
                heartbeat_ms = entry
        return Taken(payloads, gap, heartbeat_ms)


class PostgresNotificationsReader(SplitReader):
    """Reads the split; fails when its connection is lost, and the next reader reports the gap."""

    def __init__(self, settings: PostgresNotificationsSettings, schema: DimensionSchema) -> None:
        self._settings = settings
        self._decoder = NotificationDecoder(schema, loads=orjson.loads)
        self._inbox = PostgresNotificationsInbox(max_bytes=settings.max_waiting_bytes)
        self._session = PostgresNotificationsSession(
            settings,
            schema,
            on_entry=self._on_received,
            on_end=partial(self._on_lost, "the listening session was lost"),
        )
        self._stack = AsyncExitStack()
        self._has_news = asyncio.Event()
        self._failure: BackendError | None = None
        self._received_at_s = self._sent_at_s = self._requested_at_s = 0.0
        self._sent_heartbeats: dict[
            int, float
        ] = {}  # {heartbeat that is not taken: when it was sent}
        self._heartbeat_is_due = asyncio.Event()
        self._split_id: str | None = None
        self._position = 0  # payloads that were returned
        self._is_paused = False
        self._is_caught_up = False
        self._warnings = EventRateLimit()

    async def __aenter__(self) -> Self:
        """Connect, listen, and start heartbeats; raises BackendError."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._session)
            self._inbox.on_connected(self._session.last_transaction_id)
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            self._received_at_s = self._requested_at_s = asyncio.get_running_loop().time()
            stack.callback(tasks.create_task(self._send_heartbeats()).cancel)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect within a second; never raises."""
        await self._stack.aclose()  # without the caller's error, which would cancel the tasks

    async def assign(self, split: Split, *, position: int | None) -> None:
        """Read from now on, whatever the position: the server keeps no notifications."""
        self._split_id = split.id
        self._position = position or 0

    async def read(self) -> Sequence[SplitPiece]:
        """New changes, after at most a second; raises BackendError."""
        if self._failure is None and (self._is_paused or self._inbox.is_empty):
            self._has_news.clear()
            with suppress(TimeoutError):  # the piece reports how long the session is silent
                async with asyncio.timeout(_WAIT_S):
                    await self._has_news.wait()
        if self._failure is not None:
            raise self._failure
        if self._split_id is None or self._is_paused:
            return ()
        return (self._piece(self._split_id, self._inbox.take_entries(_PIECE_BYTES)),)

    def pause(self, split_ids: Collection[str]) -> None:
        """Pause if the split is among these, else resume."""
        self._is_paused = self._split_id in split_ids

    def request_sign(self) -> None:
        """Send the next heartbeat now."""
        self._heartbeat_is_due.set()

    def _piece(self, split_id: str, taken: Taken) -> SplitPiece:
        decoded = self._decoder.decode(taken.payloads)
        self._log_faults(decoded.faults.values())
        gap = () if taken.gap is None else (taken.gap,)
        changes = (*gap, *decoded.changes)
        self._position += len(taken.payloads)
        self._is_caught_up = self._is_caught_up or taken.heartbeat_ms != NO_WATERMARK_MS
        if taken.heartbeat_ms in self._sent_heartbeats:
            self._requested_at_s = self._sent_heartbeats[taken.heartbeat_ms]
            self._sent_heartbeats = {
                ms: at for ms, at in self._sent_heartbeats.items() if at > self._requested_at_s
            }
        now = asyncio.get_running_loop().time()
        return SplitPiece(
            split_id,
            self._position,
            changes=changes,
            nbytes=decoded.nbytes + len(changes) * _CHANGE_BYTES,
            watermark_ms=taken.heartbeat_ms,
            silent_s=now - self._received_at_s,
            requested_s=now - self._requested_at_s,
            is_caught_up=self._is_caught_up,
            server=self._session.server,
            ignored=decoded.ignored,
            undecodable=len(decoded.faults),
            doubt=self._session.doubt,
        )

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

    async def _send_heartbeats(self) -> None:
        while True:
            self._heartbeat_is_due.clear()
            self._sent_at_s = asyncio.get_running_loop().time()
            try:
                await self._session.send_heartbeat()
            except BackendError as error:
                self._fail(error)
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.heartbeat_interval_s):
                    await self._heartbeat_is_due.wait()

    def _on_received(self, entry: str | int) -> None:
        self._received_at_s = asyncio.get_running_loop().time()
        if isinstance(entry, int):  # before the end of its beat, as the session sent it itself
            self._sent_heartbeats.setdefault(entry, self._sent_at_s)
        if not self._inbox.add_entry(entry):
            # The next session limits the gap by its last transaction.
            self._on_lost("notifications arrived faster than they were read")
        self._has_news.set()

    def _on_lost(self, reason: str) -> None:
        detail = f"{self._settings.table}: {reason}"
        self._fail(BackendError(ErrorCode.CONNECTION_LOST, detail))

    def _fail(self, error: BackendError) -> None:
        self._failure = self._failure or error
        self._has_news.set()
