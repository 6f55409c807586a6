"""One peer of the streaming protocol: from HELLO to the last frame.

Thin: receives a frame, finds the channel, passes it on. A break of the protocol ends the connection
with WebSocket code 1002; whatever ends it, its lookups are left and its credit is back.
"""

import asyncio
from dataclasses import dataclass, replace

import structlog
from aiohttp import WSCloseCode, WSMsgType, web

from lookup_core.dimension.batcher import ChannelId
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode, ProtocolViolation, SidelookError
from lookup_core.keys.key_casts import check_key_types
from lookup_core.keys.named_key import named_key
from lookup_core.protocol import frames
from lookup_core.protocol.frame_codec import decode_frame
from lookup_core.protocol.frames import Frame
from lookup_core.protocol.server_channel import ServerChannel
from service.stream.channel_lookups import ChannelLookups
from service.stream.channel_registry import ChannelRegistry
from service.stream.outbox import Outbox
from service.stream.timeouts import Timeouts

log = structlog.get_logger()

MAX_CHANNELS = 64  # of one connection: a task has one for each dimension that it looks up
_MAX_REASON_BYTES = 120  # a close frame holds 123


@dataclass(frozen=True, slots=True)
class _Ending:
    code: WSCloseCode
    reason: str


class _Ended(Exception):
    """Never leaves this module: ends the tasks of a connection."""

    def __init__(self, code: WSCloseCode, reason: str = "") -> None:
        super().__init__(reason)
        self.ending = _Ending(code, reason)


class StreamConnection:
    """Serves one WebSocket until it closes."""

    def __init__(
        self,
        socket: web.WebSocketResponse,
        number: int,
        *,
        registry: ChannelRegistry,
        agent: str,
        timeouts: Timeouts,
    ) -> None:
        self._socket = socket
        self._number = number
        self._registry = registry
        self._agent = agent
        self._timeouts = timeouts
        self._outbox = Outbox(
            socket.send_bytes, timeout_s=timeouts.send_s, on_sending=self._on_sending
        )
        self._opening: dict[int, asyncio.Task[None]] = {}  # {channel: waits for its dimension}
        self._channels: dict[int, tuple[ChannelId, ChannelLookups]] = {}
        self._is_welcome = False
        self._must_end = asyncio.Event()

    async def serve(self) -> None:
        """Run to the end of the connection; cancellation leaves no lookup and no credit behind."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._outbox.run())
                tasks.create_task(self._wait_for_end())
                await self._receive(tasks)
        except ExceptionGroup as group:
            # The border of the connection's tasks: a defect ends this connection only.
            ending = self._ending(group.exceptions[0])
        finally:
            # Before the close, which waits for the peer.
            for number in list(self._channels):
                self._drop(number)
        await self._close(ending)

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
        raise _Ended(WSCloseCode.GOING_AWAY, "draining")

    async def _receive(self, tasks: asyncio.TaskGroup) -> None:
        await self._greet()
        while True:
            match frame := await self._next_frame():
                case frames.Open():
                    self._check_new(frame)
                    self._opening[frame.channel] = tasks.create_task(self._open(frame))
                case frames.Lookup():
                    self._channel(frame.channel).on_lookup(frame)
                    # Frames that are here already come without a pause: let others in between.
                    await asyncio.sleep(0)
                case _:
                    self._control(frame)

    async def _greet(self) -> None:
        try:
            async with asyncio.timeout(self._timeouts.hello_s):
                frame = await self._next_frame()
        except TimeoutError as error:
            raise _Ended(WSCloseCode.POLICY_VIOLATION, "no HELLO in time") from error
        if not isinstance(frame, frames.Hello):
            raise ProtocolViolation(ErrorCode.BAD_FRAME, "the first frame must be HELLO")
        if frames.PROTOCOL_VERSION not in frame.versions:
            raise ProtocolViolation(
                ErrorCode.UNSUPPORTED_VERSION,
                f"this service ({self._agent}) speaks {frames.PROTOCOL_VERSION}, "
                f"the client ({frame.agent}) {list(frame.versions)}",
            )
        self._is_welcome = True
        self._outbox.put(frames.Welcome(frames.PROTOCOL_VERSION, self._agent))

    async def _next_frame(self) -> Frame:
        message = await self._socket.receive()
        if message.type is WSMsgType.BINARY:
            return decode_frame(message.data)
        if message.type is WSMsgType.TEXT:
            raise ProtocolViolation(ErrorCode.BAD_FRAME, "frames are binary messages")
        raise _Ended(WSCloseCode.OK)  # closed or broken: there is nothing more to read

    def _check_new(self, frame: frames.Open) -> None:
        if frame.channel in self._channels or frame.channel in self._opening:
            raise ProtocolViolation(ErrorCode.BAD_FRAME, f"channel {frame.channel} is open already")
        if len(self._channels) + len(self._opening) >= MAX_CHANNELS:
            raise _Ended(WSCloseCode.TRY_AGAIN_LATER, f"more than {MAX_CHANNELS} channels")

    async def _open(self, frame: frames.Open) -> None:
        try:
            dimension = self._registry.dimension(frame.dimension)
            schema = await dimension.wait_until_described(self._timeouts.describe_s)
            frame = _with_named_key(frame, schema)
            columns = schema.select(frame.columns)
            turn, grant = self._registry.admit()
        except SidelookError as error:
            self._outbox.put(
                frames.Failure(frame.channel, error.code, error.detail, error.is_retryable)
            )
            return
        finally:
            self._opening.pop(frame.channel, None)
        book = ServerChannel(frame.channel, frame.dimension, frame.origin, grant=grant)
        self._registry.add(turn, self._number, book)
        self._channels[frame.channel] = (
            turn,
            ChannelLookups(book, frame, dimension=dimension, turn=turn, outbox=self._outbox),
        )
        names = tuple(schema.key.names)
        self._outbox.put(frames.Opened(frame.channel, grant.records, grant.bytes, columns, names))

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

    def _on_sending(self, frame: Frame) -> None:
        match frame:
            case frames.Credit():
                self._channel(frame.channel).on_credit_sent()
            case frames.Closed():
                self._drop(frame.channel)
            case _:
                pass  # nothing depends on when the others go

    def _channel(self, number: int) -> ChannelLookups:
        if number not in self._channels:
            raise ProtocolViolation(ErrorCode.UNKNOWN_CHANNEL, f"channel {number} is not open")
        return self._channels[number][1]

    def _drop(self, number: int) -> None:
        if number in self._channels:
            turn, channel = self._channels.pop(number)
            channel.abandon()
            self._registry.remove(turn)

    def _ending(self, error: Exception) -> _Ending:
        match error:
            case _Ended():
                return error.ending
            case ProtocolViolation():
                log.warning("stream.violation", connection=self._number, detail=str(error))
                return _Ending(WSCloseCode.PROTOCOL_ERROR, str(error))
            case TimeoutError():
                return _Ending(WSCloseCode.TRY_AGAIN_LATER, "the peer reads nothing")
            case ConnectionError():
                return _Ending(WSCloseCode.OK, "")
            case _:
                log.error("stream.defect", connection=self._number, exc_info=error)
                return _Ending(WSCloseCode.INTERNAL_ERROR, "a defect of the service")

    async def _close(self, ending: _Ending) -> None:
        log.info("stream.ended", connection=self._number, code=ending.code, reason=ending.reason)
        # Cut between characters: a reason must be UTF-8.
        reason = ending.reason.encode()[:_MAX_REASON_BYTES].decode(errors="ignore").encode()
        try:
            async with asyncio.timeout(self._timeouts.close_s):
                # Not drained: a peer that reads nothing would hold it up.
                await self._socket.close(code=ending.code, message=reason, drain=False)
        except TimeoutError:
            log.info("stream.close_unanswered", connection=self._number)


def _with_named_key(frame: frames.Open, schema: DimensionSchema) -> frames.Open:
    if not len(frame.key):
        return frame  # a channel that only describes the dimension
    key = named_key(frame.key, schema)
    check_key_types(key, schema)
    return replace(frame, key=key)
