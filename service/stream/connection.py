"""One connection of the streaming protocol, from HELLO to its close code."""

import asyncio
from dataclasses import dataclass, replace

import structlog
from aiohttp import WSCloseCode, WSMsgType, web

from lookup_core.dimension.batcher import ChannelId
from lookup_core.dimension_schema import DimensionSchema, version_columns
from lookup_core.errors import ErrorCode, ProtocolViolation, SidelookError
from lookup_core.keys.key_casts import check_key_types
from lookup_core.keys.typed_keys import named_key
from lookup_core.protocol import frames
from lookup_core.protocol.frame_codec import decode_frame
from lookup_core.protocol.frames import Frame
from lookup_core.protocol.server_channel import PingRateLimit, ServerChannel
from service.stream.channel_lookups import ChannelLookups
from service.stream.outbox import AnswerPiece, Outbox, Outgoing
from service.stream.stream_lookup import Asker, ChannelSchema
from service.stream.stream_parts import StreamParts

log = structlog.get_logger()

_MAX_REASON_BYTES = 120  # a close frame holds 123


@dataclass(frozen=True, slots=True)
class ConnectionEnd:
    """What the peer is told."""

    code: WSCloseCode
    reason: str = ""

    @property
    def message(self) -> bytes:
        """The reason as it fits a close frame, cut between characters: it must be UTF-8."""
        return self.reason.encode()[:_MAX_REASON_BYTES].decode(errors="ignore").encode()


class ConnectionEnded(Exception):
    """Never leaves the tasks of one connection."""

    def __init__(self, code: WSCloseCode, reason: str = "") -> None:
        super().__init__(reason)
        self.end = ConnectionEnd(code, reason)


def connection_end(error: Exception, connection: int) -> ConnectionEnd:
    """What the error of a connection's task means for its peer; logs what somebody should see."""
    match error:
        case ConnectionEnded():
            return error.end
        case ProtocolViolation():
            log.warning(
                "stream.violation", connection=connection, code=error.code, detail=str(error)
            )
            return ConnectionEnd(WSCloseCode.PROTOCOL_ERROR, str(error))
        case TimeoutError():
            return ConnectionEnd(WSCloseCode.TRY_AGAIN_LATER, "the peer reads nothing")
        case ConnectionError():
            return ConnectionEnd(WSCloseCode.OK)
        case _:
            log.error("stream.defect", connection=connection, exc_info=error)
            return ConnectionEnd(WSCloseCode.INTERNAL_ERROR, "a defect of the service")


MAX_CHANNELS = 64  # of one connection: a task has one for each dimension that it looks up
_PINGS = {WSMsgType.PING, WSMsgType.PONG}


class StreamConnection:
    """Serves one WebSocket until it closes."""

    def __init__(self, socket: web.WebSocketResponse, number: int, parts: StreamParts) -> None:
        self._socket = socket
        self._number = number
        self._parts = parts
        self._registry = parts.registry
        self._timeouts = parts.timeouts
        self._outbox = Outbox(
            socket.send_bytes,
            timeout_s=parts.timeouts.send_s,
            on_sending=self._on_sending,
            on_sent=self._on_sent,
        )
        self._pings = PingRateLimit(parts.line.now())
        self._opening: dict[int, asyncio.Task[None]] = {}  # {channel: waits for its dimension}
        self._channels: dict[int, tuple[ChannelId, ChannelLookups]] = {}
        self._is_welcome = False
        self._must_end = asyncio.Event()
        self._why: Exception = ConnectionEnded(WSCloseCode.GOING_AWAY, "draining")

    async def serve(self) -> None:
        """Run to the end of the connection; cancellation leaves no lookup and no credit behind."""
        self._parts.budget.open(self._number)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._outbox.run())
                tasks.create_task(self._wait_for_end())
                await self._receive(tasks)
        except ExceptionGroup as group:
            # The border of the connection's tasks: a defect ends this connection only.
            end = connection_end(group.exceptions[0], self._number)
        finally:
            # Before the close, which waits for the peer.
            for number in list(self._channels):
                self._drop(number)
            self._outbox.clear()
            self._parts.budget.close(self._number)
            self._parts.line.on_room()
        await self._close(end)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is on its way to the peer."""
        return self._outbox.is_idle

    def go_away(self, reason: str) -> None:
        """Ask the peer to open nothing new here; end what has not begun."""
        if self._is_welcome:
            self._outbox.put(frames.Goaway(reason))
        else:
            self.end()

    def end(self) -> None:
        """Close for good, with code 1001; `serve` returns when that is done."""
        self._must_end.set()

    async def _wait_for_end(self) -> None:
        await self._must_end.wait()
        raise self._why

    def _end_for(self, error: Exception) -> None:
        self._why = error
        self._must_end.set()

    async def _receive(self, tasks: asyncio.TaskGroup) -> None:
        await self._greet()
        while True:
            match frame := await self._next_frame():
                case frames.Open():
                    self._check_new(frame)
                    self._opening[frame.channel] = tasks.create_task(self._open(frame))
                case frames.Lookup():
                    self._channel(frame.channel).on_lookup(frame)
                case _:
                    self._control(frame)
            # Frames that are here already come without a pause: let others in between.
            await asyncio.sleep(0)

    async def _greet(self) -> None:
        try:
            async with asyncio.timeout(self._timeouts.hello_s):
                frame = await self._next_frame()
        except TimeoutError as error:
            raise ConnectionEnded(WSCloseCode.POLICY_VIOLATION, "no HELLO in time") from error
        if not isinstance(frame, frames.Hello):
            raise ProtocolViolation(ErrorCode.BAD_FRAME, "the first frame must be HELLO")
        if frames.PROTOCOL_VERSION not in frame.versions:
            raise ProtocolViolation(
                ErrorCode.UNSUPPORTED_VERSION,
                f"this service ({self._parts.agent}) speaks {frames.PROTOCOL_VERSION}, "
                f"the client ({frame.agent}) {list(frame.versions)}",
            )
        self._is_welcome = True
        self._outbox.put(frames.Welcome(frames.PROTOCOL_VERSION, self._parts.agent))

    async def _next_frame(self) -> Frame:
        # Who does not take what is there for it may not ask for more: not even for refusals.
        await self._outbox.wait_for_room()
        while (message := await self._socket.receive()).type in _PINGS:
            if message.type is WSMsgType.PING:
                await self._on_ping(message.data)
            await asyncio.sleep(0)
        if message.type is WSMsgType.BINARY:
            return decode_frame(message.data)
        if message.type is WSMsgType.TEXT:
            raise ProtocolViolation(ErrorCode.BAD_FRAME, "frames are binary messages")
        raise ConnectionEnded(WSCloseCode.OK)  # closed or broken: there is nothing more to read

    async def _on_ping(self, content: bytes) -> None:
        if not self._pings.take(self._parts.line.now()):
            raise ConnectionEnded(WSCloseCode.POLICY_VIOLATION, "too many pings")
        async with asyncio.timeout(self._timeouts.send_s):
            await self._socket.pong(content)

    def _check_new(self, frame: frames.Open) -> None:
        if frame.channel in self._channels or frame.channel in self._opening:
            raise ProtocolViolation(ErrorCode.BAD_FRAME, f"channel {frame.channel} is open already")
        if len(self._channels) + len(self._opening) >= MAX_CHANNELS:
            raise ConnectionEnded(WSCloseCode.TRY_AGAIN_LATER, f"more than {MAX_CHANNELS} channels")

    async def _open(self, frame: frames.Open) -> None:
        try:
            dimension = self._registry.dimension(frame.dimension)
            schema = await dimension.wait_until_described(self._timeouts.describe_s)
            frame = _with_named_key(frame, schema)
            select = schema.select_versions if frame.is_as_of else schema.select
            promised = DimensionSchema(schema.key, select(frame.columns))
            turn, book = self._registry.admit(frame, connection=self._number)
        except SidelookError as error:
            self._outbox.put(
                frames.Failure(frame.channel, error.code, error.detail, error.is_retryable)
            )
            return
        finally:
            self._opening.pop(frame.channel, None)
        self._channels[frame.channel] = (
            turn,
            self._lookups(book, frame, promised=promised, turn=turn),
        )
        names, versions = tuple(schema.key.names), version_columns(schema.columns)
        credit = book.share.records, book.share.bytes
        waits = dimension.settings.wait_for_dimension_s > 0
        opened = frames.Opened(
            frame.channel, *credit, promised.columns, names, versions=versions, waits=waits
        )
        self._outbox.put(opened)

    def _lookups(
        self,
        book: ServerChannel[ChannelId],
        opened: frames.Open,
        *,
        promised: DimensionSchema,
        turn: ChannelId,
    ) -> ChannelLookups:
        asker = Asker(
            self._number,
            opened.channel,
            turn,
            self._registry.dimension(opened.dimension),
            ChannelSchema(opened.key, promised),
            self._parts.budget,
            self._parts.costs.newcomer(opened.dimension),
            self._parts.tracer,
        )
        return ChannelLookups(
            book,
            opened,
            asker=asker,
            line=self._parts.line,
            outbox=self._outbox,
            on_defect=self._end_for,
        )

    def _control(self, frame: Frame) -> None:
        match frame:
            case frames.Watermark() | frames.Status():
                self._on_event_time(frame)
            case frames.Cancel():
                self._on_cancel(frame)
            case frames.Close():
                self._on_close(frame)
            case _:
                kind = type(frame).__name__.upper()
                raise ProtocolViolation(ErrorCode.BAD_FRAME, f"a client never sends {kind} here")

    def _on_event_time(self, frame: frames.Watermark | frames.Status) -> None:
        book = self._channel(frame.channel).book
        turn, _ = self._channels[frame.channel]
        if book.is_closing:
            kind = type(frame).__name__.upper()
            raise ProtocolViolation(
                ErrorCode.UNKNOWN_CHANNEL, f"{kind} after CLOSE on {frame.channel}"
            )
        if isinstance(frame, frames.Watermark):
            book.on_watermark(frame.watermark_ms)
            self._registry.watermarks.on_watermark(turn, frame.watermark_ms)
        else:
            book.is_idle = frame.is_idle
            self._registry.watermarks.on_status(turn, is_idle=frame.is_idle)

    def _on_cancel(self, frame: frames.Cancel) -> None:
        # On its way it may have met the CLOSED or ERROR that ended the channel: harmless.
        if frame.channel in self._channels:
            self._channel(frame.channel).on_cancel(frame.sequence)

    def _on_close(self, frame: frames.Close) -> None:
        opening = self._opening.pop(frame.channel, None)
        if opening is not None:
            opening.cancel()
            self._outbox.put(frames.Closed(frame.channel))
        elif frame.channel in self._channels:  # otherwise as for CANCEL
            self._channel(frame.channel).on_close()

    def _on_sending(self, frame: Outgoing) -> None:
        match frame:
            case frames.Credit():
                self._channel(frame.channel).on_credit_sent()
            case frames.Closed():
                self._drop(frame.channel)
            case _:
                pass  # nothing depends on when the others go

    def _on_sent(self, outgoing: Outgoing) -> None:
        if isinstance(outgoing, AnswerPiece):
            held_bytes = outgoing.held_bytes
            self._parts.budget.release(self._number, outgoing.channel, held_bytes)
            self._parts.line.on_room()

    def _channel(self, number: int) -> ChannelLookups:
        if number not in self._channels:
            raise ProtocolViolation(ErrorCode.UNKNOWN_CHANNEL, f"channel {number} is not open")
        return self._channels[number][1]

    def _drop(self, number: int) -> None:
        if number in self._channels:
            turn, channel = self._channels.pop(number)
            channel.abandon()
            self._registry.remove(turn)

    async def _close(self, end: ConnectionEnd) -> None:
        log.info("stream.ended", connection=self._number, code=end.code, reason=end.reason)
        try:
            async with asyncio.timeout(self._timeouts.close_s):
                # Not drained: a peer that reads nothing would hold it up.
                await self._socket.close(code=end.code, message=end.message, drain=False)
        except TimeoutError:
            log.info("stream.close_unanswered", connection=self._number)


def _with_named_key(frame: frames.Open, schema: DimensionSchema) -> frames.Open:
    if not len(frame.key):
        return frame  # a channel that only describes the dimension
    key = named_key(frame.key, schema)
    check_key_types(key, schema)
    return replace(frame, key=key)
