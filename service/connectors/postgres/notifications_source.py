"""Notification source: changes that triggers publish by NOTIFY, in order and bounded."""

import asyncio
import sys
from collections import Counter, deque
from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import orjson
import structlog

from lookup_core.changelog.change_decoder import TableChange
from lookup_core.changelog.notification import NotificationDecoder
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.event_rate_limit import EventRateLimit
from lookup_core.sources.splits import ReadingMode, Split
from lookup_core.watermark_valve import NO_WATERMARK_MS
from service.connectors.ports.source import SplitPiece
from service.connectors.postgres.notifications_session import (
    PostgresNotificationsSession,
    PostgresNotificationsSettings,
)
from service.connectors.postgres.triggers import TriggerCheck, trigger_names

_JUST_CONNECTED = "notifications may have been lost before the connection was made"
_LOW_HALF = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Taken:
    """What was next, in the order of arrival; the loss comes first, if there was one."""

    payloads: Sequence[str]
    lost: TableChange | None  # that notifications before these are gone
    heartbeat_ms: int  # the server's clock at the last heartbeat among these, or NO_WATERMARK_MS

    @property
    def has_heartbeat(self) -> bool:
        """Whether the connection has shown that it hears."""
        return self.heartbeat_ms != NO_WATERMARK_MS


class PostgresNotificationsInbox:
    """Payloads and heartbeats; begins with a loss, because nobody knows what came before."""

    def __init__(self, *, max_bytes: int) -> None:
        self._lost: TableChange | None = TableChange(_JUST_CONNECTED)
        self._max_bytes = max_bytes
        self._entries: deque[str | int] = deque()  # payloads, and heartbeats in ms
        self._nbytes = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to take."""
        return self._lost is None and not self._entries

    def on_connected(self, last_transaction_id: int) -> None:
        """No later transaction than this one of the primary is among what is lost."""
        self._lost = TableChange(_JUST_CONNECTED, last_transaction_id & _LOW_HALF)

    def put(self, entry: str | int) -> bool:
        """A payload or a heartbeat; whether there was room for it."""
        size = sys.getsizeof(entry)
        if self._nbytes + size > self._max_bytes:
            return False
        self._entries.append(entry)
        self._nbytes += size
        return True

    def take(self, max_bytes: int) -> Taken:
        """At least one entry, if there is any, and no more than so many bytes beyond it."""
        lost, self._lost = self._lost, None
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
        return Taken(payloads, lost, heartbeat_ms)


log = structlog.get_logger()

_WAIT_S = 1.0
_PIECE_BYTES = 256 * 2**10  # of payloads: decoded in a few milliseconds
_CHANGE_BYTES = 100  # besides its columns, by and large


class PostgresNotificationsReader:
    """Of one split; a connection that was lost is an error, and its successor tells of the gap."""

    def __init__(
        self,
        settings: PostgresNotificationsSettings,
        decoder: NotificationDecoder,
        *,
        triggers: TriggerCheck,
    ) -> None:
        self._settings = settings
        self._decoder = decoder
        self._inbox = PostgresNotificationsInbox(max_bytes=settings.max_waiting_bytes)
        self._session = PostgresNotificationsSession(
            settings, triggers, hear=self._on_heard, on_end=self._on_end
        )
        self._stack = AsyncExitStack()
        self._news = asyncio.Event()
        self._failure: BackendError | None = None
        self._heard_at_s = 0.0
        self._split_id: str | None = None  # until it is given one
        self._position = 0  # how many notifications were told
        self._is_paused = False
        self._is_caught_up = False
        self._warnings = EventRateLimit()

    async def __aenter__(self) -> Self:
        """Connect, listen, and begin to send heartbeats; raises BackendError."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._session)
            self._inbox.on_connected(self._session.last_transaction_id)
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            self._heard_at_s = asyncio.get_running_loop().time()
            stack.callback(tasks.create_task(self._beat()).cancel)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Disconnect, at the latest after a second; never raises."""
        await self._stack.aclose()  # without the error, which is none of the heartbeats'

    async def assign(self, split: Split, *, position: int | None) -> None:
        """Tell what is heard from now on; nobody has kept what was told before."""
        self._split_id = split.id
        self._position = position or 0

    async def read(self) -> Sequence[SplitPiece]:
        """What was heard by now, waited for a second at the most; raises BackendError."""
        if self._failure is None and (self._is_paused or self._inbox.is_empty):
            await self._wait()
        if self._failure is not None:
            raise self._failure
        if self._split_id is None or self._is_paused:
            return ()
        return (self._piece(self._split_id, self._inbox.take(_PIECE_BYTES)),)

    def pause(self, split_ids: Collection[str]) -> None:
        """Tell nothing while the split is among these."""
        self._is_paused = self._split_id in split_ids

    def _piece(self, split_id: str, taken: Taken) -> SplitPiece:
        decoded = self._decoder.decode(taken.payloads)
        self._log_faults(decoded.faults.values())
        lost = () if taken.lost is None else (taken.lost,)
        changes = (*lost, *decoded.changes)
        self._position += len(taken.payloads)
        self._is_caught_up = self._is_caught_up or taken.has_heartbeat
        return SplitPiece(
            split_id,
            self._position,
            changes=changes,
            nbytes=decoded.nbytes + len(changes) * _CHANGE_BYTES,
            watermark_ms=taken.heartbeat_ms,
            silent_s=asyncio.get_running_loop().time() - self._heard_at_s,
            is_caught_up=self._is_caught_up,
            ignored=decoded.ignored,
            undecodable=len(decoded.faults),
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

    async def _wait(self) -> None:
        self._news.clear()
        try:
            async with asyncio.timeout(_WAIT_S):
                await self._news.wait()
        except TimeoutError:
            pass  # then only how long it has been silent is told

    async def _beat(self) -> None:
        while True:
            try:
                await self._session.beat()
            except BackendError as error:
                self._fail(error)
                return
            await asyncio.sleep(self._settings.heartbeat_interval_s)

    def _on_heard(self, entry: str | int) -> None:
        self._heard_at_s = asyncio.get_running_loop().time()
        if not self._inbox.put(entry):
            # The next session tells up to which transaction something is lost.
            self._on_lost("more notifications came than were read")
        self._news.set()

    def _on_end(self) -> None:
        self._on_lost("the session that listens was lost")

    def _on_lost(self, reason: str) -> None:
        detail = f"{self._settings.table}: {reason}"
        self._fail(BackendError(ErrorCode.CONNECTION_LOST, detail))

    def _fail(self, error: BackendError) -> None:
        self._failure = self._failure or error
        self._news.set()


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
            triggers=TriggerCheck(origin, names, script=settings.script),
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
