"""One connection of the streaming protocol, from HELLO to its close code."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import structlog
from aiohttp import WSCloseCode, WSMsgType, web

from lookup_core.dimension.default_row import default_row
from lookup_core.dimension_schema import DimensionSchema, version_columns
from lookup_core.errors import (
    ErrorCode,
    InvalidRequest,
    ProtocolViolation,
    SidelookError,
    bad_frame,
    named_dimension,
    of_dimension,
)
from lookup_core.keys.typed_keys import check_key_types, named_key
from lookup_core.lookup_options import NO_OPTIONS
from lookup_core.protocol import frames
from lookup_core.protocol.answer_budget import AnswerBudget
from lookup_core.protocol.arrow_payload import encode_batch
from lookup_core.protocol.frame_codec import decode_frame
from lookup_core.protocol.frames import MAX_CHANNELS, Frame
from lookup_core.protocol.json_frames import MAX_DEFAULT_BYTES
from lookup_core.protocol.lookup_scheduler import LearnedCosts
from lookup_core.protocol.server_channel import ping_limit
from lookup_core.settings import DimensionSettings, Match
from service.engine.dimension import Dimension
from service.engine.tracer import Tracer
from service.stream.channel_lookups import ChannelLookups
from service.stream.channel_registry import AdmittedChannel, ChannelRegistry
from service.stream.lookup_queue import LookupQueue
from service.stream.outbox import AnswerPiece, Outbox, Outgoing
from service.stream.stream_lookup import ChannelContext, ChannelSchema

log = structlog.get_logger()

_MAX_REASON_BYTES = 120  # a close frame holds 123


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Timeouts of one connection."""

    hello_s: float = 10.0  # until the first frame
    describe_s: float = 2.0  # how long OPEN waits for the description by the backend
    send_s: float = 30.0  # until the peer has taken one frame
    close_s: float = 2.0  # until the peer has answered the close
    heartbeat_s: float = 15.0  # of silence until a ping; half of it until the pong


@dataclass(frozen=True, slots=True)
class StreamParts:
    """What all connections of the process share."""

    registry: ChannelRegistry
    queue: LookupQueue
    budget: AnswerBudget[int]  # by connection number
    costs: LearnedCosts
    agent: str
    timeouts: Timeouts
    tracer: Tracer


class ConnectionEnded(Exception):
    """Ends the tasks of one connection; the peer gets code and reason."""

    def __init__(self, code: WSCloseCode, reason: str = "") -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason

    @property
    def message(self) -> bytes:
        """The reason, cut between characters to the size of a close frame."""
        return self.reason.encode()[:_MAX_REASON_BYTES].decode(errors="ignore").encode()


def connection_end(error: Exception, connection: int) -> ConnectionEnded:
    """Close code and reason for an error of a connection's task; logs violations and defects."""
    match error:
        case ConnectionEnded():
            return error
        case ProtocolViolation():
            log.warning(
                "stream.protocol_violation",
                connection=connection,
                code=error.code,
                detail=str(error),
            )
            return ConnectionEnded(WSCloseCode.PROTOCOL_ERROR, str(error))
        case TimeoutError():
            return ConnectionEnded(WSCloseCode.TRY_AGAIN_LATER, "the peer reads nothing")
        case ConnectionError():
            return ConnectionEnded(WSCloseCode.OK)
        case _:
            log.error("stream.internal_error", connection=connection, exc_info=error)
            return ConnectionEnded(WSCloseCode.INTERNAL_ERROR, "internal error of the service")


_REMEMBERED_CHANNELS = 1024  # revoked ones, of one connection
_PINGS = {WSMsgType.PING, WSMsgType.PONG}


class StreamConnection:
    """Serves one WebSocket until it is closed."""

    def __init__(
        self,
        socket: web.WebSocketResponse,
        number: int,
        parts: StreamParts,
        *,
        is_local: bool = False,
    ) -> None:
        """`is_local`: the peer is on this machine, and may read shared caches."""
        self._socket = socket
        self._number = number
        self._is_local = is_local
        self._parts = parts
        self._registry = parts.registry
        self._timeouts = parts.timeouts
        self._outbox = Outbox(
            socket.send_bytes,
            timeout_s=parts.timeouts.send_s,
            on_sending=self._on_sending,
            on_sent=self._on_sent,
        )
        self._pings = ping_limit()
        self._opening: dict[int, asyncio.Task[None]] = {}  # {channel being opened: task}
        self._channels: dict[int, ChannelLookups] = {}
        self._revoked: dict[int, None] = {}  # until they are opened again, oldest first
        self._is_greeted = False
        self._must_end = asyncio.Event()
        self._cause: Exception = ConnectionEnded(WSCloseCode.GOING_AWAY, "draining")

    async def serve(self) -> None:
        """Run until the connection ends; lookups and credit are released, even when cancelled."""
        self._parts.budget.open(self._number)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._outbox.run())
                tasks.create_task(self._wait_for_end())
                await self._receive(tasks)
        except ExceptionGroup as group:
            # Border of the connection's tasks: a defect ends this connection only.
            end = connection_end(group.exceptions[0], self._number)
        finally:
            # Before the close, which waits for the peer.
            for number in list(self._channels):
                self._drop(number)
            self._outbox.clear()
            self._parts.budget.close(self._number)
            self._parts.queue.on_room()
        await self._close(end)

    @property
    def is_idle(self) -> bool:
        """Whether no frame is queued for the peer."""
        return self._outbox.is_idle

    def go_away(self, reason: str) -> None:
        """Send GOAWAY, so that the peer opens nothing new; end a connection without HELLO."""
        if self._is_greeted:
            self._outbox.put(frames.Goaway(reason))
        else:
            self.end()

    def end(self) -> None:
        """Close the connection with code 1001; `serve` returns once it is closed."""
        self._must_end.set()

    async def _wait_for_end(self) -> None:
        await self._must_end.wait()
        raise self._cause

    def _end_for(self, error: Exception) -> None:
        self._cause = error
        self._must_end.set()

    async def _receive(self, tasks: asyncio.TaskGroup) -> None:
        await self._greet()
        while True:
            match frame := await self._next_frame():
                case frames.Lookup() | frames.Watermark() | frames.Status() if (
                    frame.channel in self._revoked
                ):
                    pass  # sent before the client read ERROR: it sends it again
                case frames.Open():
                    self._revoked.pop(frame.channel, None)
                    if self._has_room_for(frame):
                        self._opening[frame.channel] = tasks.create_task(self._open(frame))
                case frames.Lookup():
                    self._channel(frame.channel).on_lookup(frame)
                case _:
                    self._control(frame)
            # Buffered frames arrive without a pause: let other tasks run in between.
            await asyncio.sleep(0)

    async def _greet(self) -> None:
        try:
            async with asyncio.timeout(self._timeouts.hello_s):
                frame = await self._next_frame()
        except TimeoutError as error:
            raise ConnectionEnded(WSCloseCode.POLICY_VIOLATION, "no HELLO in time") from error
        if not isinstance(frame, frames.Hello):
            raise bad_frame("the first frame must be HELLO")
        if frames.PROTOCOL_VERSION not in frame.versions:
            raise ProtocolViolation(
                ErrorCode.UNSUPPORTED_VERSION,
                f"this service ({self._parts.agent}) speaks {frames.PROTOCOL_VERSION}, "
                f"the client ({frame.agent}) {list(frame.versions)}",
            )
        self._is_greeted = True
        self._outbox.put(frames.Welcome(frames.PROTOCOL_VERSION, self._parts.agent))

    async def _next_frame(self) -> Frame:
        # A peer that does not read its frames may not cause more of them, not even refusals.
        await self._outbox.wait_for_room()
        while (message := await self._socket.receive()).type in _PINGS:
            if message.type is WSMsgType.PING:
                await self._on_ping(message.data)
            await asyncio.sleep(0)
        if message.type is WSMsgType.BINARY:
            return decode_frame(message.data)
        if message.type is WSMsgType.TEXT:
            raise bad_frame("frames are binary messages")
        raise ConnectionEnded(WSCloseCode.OK)  # closed or broken

    async def _on_ping(self, content: bytes) -> None:
        if not self._pings.take(self._parts.queue.now()):
            raise ConnectionEnded(WSCloseCode.POLICY_VIOLATION, "too many pings")
        async with asyncio.timeout(self._timeouts.send_s):
            await self._socket.pong(content)

    def _has_room_for(self, frame: frames.Open) -> bool:
        """Whether the connection may have another channel; otherwise, this one is refused."""
        if frame.channel in self._channels or frame.channel in self._opening:
            raise bad_frame(f"channel {frame.channel} is already open")
        if len(self._channels) + len(self._opening) < MAX_CHANNELS:
            return True
        detail = f"its connection has {MAX_CHANNELS} channels, the limit; use another connection"
        refusal = of_dimension(frame.dimension, detail)
        self._outbox.put(
            frames.Failure(frame.channel, ErrorCode.OVERLOADED, refusal, is_retryable=True)
        )
        return False

    async def _open(self, frame: frames.Open) -> None:
        try:
            dimension = named_dimension(self._registry.dimensions, frame.dimension)
            schema = await dimension.wait_until_described(self._timeouts.describe_s)
            if not schema.has_columns(frame.columns):
                schema = await dimension.described_again(self._timeouts.describe_s)
            with _refusals_of(frame.dimension):
                frame = _with_named_key(frame, schema)
                select = schema.select_versions if frame.is_as_of else schema.select
                opened_schema = DimensionSchema(schema.key, select(frame.columns))
            needed = dimension.check_options(frame.options)
            default = _default(dimension.settings, opened_schema) if frame.wants_default else None
            admitted = self._registry.admit(
                frame, connection=self._number, revoke=partial(self._revoke, frame.channel)
            )
        except SidelookError as error:
            self._outbox.put(
                frames.Failure(frame.channel, error.code, error.detail, error.is_retryable)
            )
            return
        finally:
            self._opening.pop(frame.channel, None)
        channel_schema = ChannelSchema(frame.key, opened_schema, needed)
        self._add_channel(admitted, frame, dimension=dimension, schema=channel_schema)
        names, versions = tuple(schema.key.names), version_columns(schema.columns)
        share = admitted.state.share
        waits = dimension.settings.wait_for_dimension_s > 0
        opened = frames.Opened(
            *(frame.channel, share.records, share.bytes, opened_schema.columns, names),
            versions=versions,
            waits=waits,
            options=frame.options,
            has_all_rows=dimension.settings.match is Match.ALL,
            default=default,
            cache=dimension.shared_folder if self._is_local else None,
        )
        self._outbox.put(opened)

    def _add_channel(
        self,
        admitted: AdmittedChannel,
        frame: frames.Open,
        *,
        dimension: Dimension,
        schema: ChannelSchema,
    ) -> None:
        context = ChannelContext(
            connection=self._number,
            channel=frame.channel,
            id=admitted.id,
            dimension=dimension,
            schema=schema,
            budget=self._parts.budget,
            costs=self._parts.costs.newcomer(frame.dimension),
            tracer=self._parts.tracer,
            options=None if frame.options == NO_OPTIONS else frame.options,
        )
        self._channels[frame.channel] = ChannelLookups(
            admitted, frame, context, self._parts.queue, self._outbox, on_defect=self._end_for
        )

    def _revoke(self, number: int) -> None:
        """End a silent channel; its client opens it again when it needs it."""
        self._drop(number)
        self._revoked[number] = None
        if len(self._revoked) > _REMEMBERED_CHANNELS:
            del self._revoked[next(iter(self._revoked))]
        log.info("stream.channel_revoked", connection=self._number, channel=number)
        detail = (
            "the channel was silent, and another one needs its share; open it again for lookups"
        )
        self._outbox.put(frames.Failure(number, ErrorCode.OVERLOADED, detail, is_retryable=True))

    def _control(self, frame: Frame) -> None:
        match frame:
            case frames.Watermark() | frames.Status():
                self._on_event_time(frame)
            case frames.Cancel():
                self._on_cancel(frame)
            case frames.Cached():
                if frame.channel in self._channels:
                    self._channels[frame.channel].on_cached(frame)
            case frames.Close():
                self._on_close(frame)
            case _:
                kind = type(frame).__name__.upper()
                raise bad_frame(f"a client never sends {kind} here")

    def _on_event_time(self, frame: frames.Watermark | frames.Status) -> None:
        channel = self._channel(frame.channel)
        if channel.admitted.state.is_closing:
            kind = type(frame).__name__.upper()
            raise ProtocolViolation(
                ErrorCode.UNKNOWN_CHANNEL, f"{kind} after CLOSE on {frame.channel}"
            )
        if isinstance(frame, frames.Watermark):
            channel.admitted.state.on_watermark(frame.watermark_ms)
            self._registry.watermarks.on_watermark(channel.admitted.id, frame.watermark_ms)
        else:
            channel.admitted.state.is_idle = frame.is_idle
            self._registry.watermarks.on_status(channel.admitted.id, is_idle=frame.is_idle)

    def _on_cancel(self, frame: frames.Cancel) -> None:
        # The channel may have ended while CANCEL was on its way.
        if frame.channel in self._channels:
            self._channels[frame.channel].on_cancel(frame.sequence)

    def _on_close(self, frame: frames.Close) -> None:
        opening = self._opening.pop(frame.channel, None)
        if opening is not None:
            opening.cancel()
            self._outbox.put(frames.Closed(frame.channel))
        elif frame.channel in self._channels:  # otherwise it has ended, as for CANCEL
            self._channels[frame.channel].on_close()

    def _on_sending(self, frame: Outgoing) -> None:
        match frame:
            case frames.Credit():
                self._channel(frame.channel).on_credit_sent()
            case frames.Closed():
                self._drop(frame.channel)
            case _:
                pass  # other frames have no effect when they are sent

    def _on_sent(self, outgoing: Outgoing) -> None:
        if isinstance(outgoing, AnswerPiece):
            held_bytes = outgoing.held_bytes
            self._parts.budget.release(self._number, outgoing.channel, held_bytes)
            self._parts.queue.on_room()

    def _channel(self, number: int) -> ChannelLookups:
        if number not in self._channels:
            raise ProtocolViolation(ErrorCode.UNKNOWN_CHANNEL, f"channel {number} is not open")
        return self._channels[number]

    def _drop(self, number: int) -> None:
        if number in self._channels:
            channel = self._channels.pop(number)
            channel.abandon()
            self._registry.remove(channel.admitted.id)

    async def _close(self, end: ConnectionEnded) -> None:
        log.info("stream.closed", connection=self._number, code=end.code, reason=end.reason)
        try:
            async with asyncio.timeout(self._timeouts.close_s):
                # Not drained: a peer that reads nothing would block it.
                await self._socket.close(code=end.code, message=end.message, drain=False)
        except TimeoutError:
            log.info("stream.close_timeout", connection=self._number)


def _default(settings: DimensionSettings, schema: DimensionSchema) -> bytes | None:
    if settings.default is None:
        return None
    offered = schema.columns
    values = {name: value for name, value in settings.default.items() if name in offered.names}
    row = bytes(encode_batch(default_row(values, offered)))
    if len(row) > MAX_DEFAULT_BYTES:
        detail = f"the default row has {len(row)} bytes, at most {MAX_DEFAULT_BYTES} can be sent"
        raise InvalidRequest(ErrorCode.BAD_REQUEST, f"{detail}; name fewer columns")
    return row


def _with_named_key(frame: frames.Open, schema: DimensionSchema) -> frames.Open:
    if not len(frame.key):
        return frame  # the channel only describes the dimension
    key = named_key(frame.key, schema)
    check_key_types(key, schema)
    return replace(frame, key=key)


@contextmanager
def _refusals_of(dimension: str) -> Iterator[None]:
    """Name the dimension in refusals."""
    try:
        yield
    except InvalidRequest as error:
        raise InvalidRequest(error.code, of_dimension(dimension, error.detail)) from error
