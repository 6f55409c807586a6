"""One peer of the streaming protocol: from HELLO to the last frame.

Thin: receives a frame, finds the channel, passes it on. A break of the protocol ends the connection
with WebSocket code 1002; whatever ends it, its lookups are left and its credit is back.
"""

import asyncio

import structlog
from aiohttp import WSCloseCode, WSMsgType, web

from lookup_core import frames
from lookup_core.batcher import ChannelId
from lookup_core.errors import ErrorCode, ProtocolViolation, SidelookError
from lookup_core.frame_codec import decode_frame
from lookup_core.frames import Frame
from lookup_core.key_casts import check_key_types
from lookup_core.server_channel import ServerChannel
from service.stream.channel_lookups import ChannelLookups
from service.stream.channel_registry import ChannelRegistry
from service.stream.outbox import Outbox

log = structlog.get_logger()

HELLO_TIMEOUT_S = 10.0
_DESCRIBE_WAIT_S = 2.0
_MAX_REASON_BYTES = 120  # a close frame holds 123


class StreamConnection:
    """Serves one WebSocket until it closes."""

    def __init__(
        self, socket: web.WebSocketResponse, number: int, *, registry: ChannelRegistry, agent: str
    ) -> None:
        self._socket = socket
        self._number = number
        self._registry = registry
        self._agent = agent
        self._outbox = Outbox(socket)
        self._opening: set[int] = set()
        self._channels: dict[int, tuple[ChannelId, ChannelLookups]] = {}

    async def serve(self) -> None:
        """Run to the end of the connection; cancellation leaves no lookup and no credit behind."""
        try:
            async with asyncio.TaskGroup() as tasks:
                sender = tasks.create_task(self._outbox.run())
                await self._receive(tasks)
                sender.cancel()
        except* ProtocolViolation as group:
            await self._refuse(group.exceptions[0])
        except* TimeoutError:
            await self._close(WSCloseCode.TRY_AGAIN_LATER, "the peer reads nothing")
        except* ConnectionError:
            log.info("stream.lost", connection=self._number)
        finally:
            for number in list(self._channels):
                self._drop(number)

    def go_away(self, reason: str) -> None:
        """Ask the peer to open nothing new here."""
        self._outbox.put(frames.Goaway(reason))

    async def close(self) -> None:
        """Close for good, with code 1001."""
        await self._close(WSCloseCode.GOING_AWAY, "draining")

    async def _receive(self, tasks: asyncio.TaskGroup) -> None:
        if not await self._greet():
            return
        while (frame := await self._next_frame()) is not None:
            match frame:
                case frames.Open():
                    self._check_new(frame)
                    tasks.create_task(self._open(frame))
                case frames.Lookup():
                    self._channel(frame.channel).on_lookup(frame)
                    # Frames that are here already come without a pause: let others in between.
                    await asyncio.sleep(0)
                case _:
                    self._control(frame)

    async def _greet(self) -> bool:
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                frame = await self._next_frame()
        except TimeoutError:
            await self._close(WSCloseCode.POLICY_VIOLATION, "no HELLO in time")
            return False
        if frame is None:
            return False
        if not isinstance(frame, frames.Hello):
            raise ProtocolViolation(ErrorCode.BAD_FRAME, "the first frame must be HELLO")
        if frames.PROTOCOL_VERSION not in frame.versions:
            raise ProtocolViolation(
                ErrorCode.UNSUPPORTED_VERSION,
                f"this service ({self._agent}) speaks {frames.PROTOCOL_VERSION}, "
                f"the client ({frame.agent}) {list(frame.versions)}",
            )
        self._outbox.put(frames.Welcome(frames.PROTOCOL_VERSION, self._agent))
        return True

    async def _next_frame(self) -> Frame | None:
        message = await self._socket.receive()
        if message.type is WSMsgType.BINARY:
            return decode_frame(message.data)
        if message.type is WSMsgType.TEXT:
            raise ProtocolViolation(ErrorCode.BAD_FRAME, "frames are binary messages")
        return None  # closed, closing or broken: there is nothing more to read

    def _check_new(self, frame: frames.Open) -> None:
        if frame.channel in self._channels or frame.channel in self._opening:
            raise ProtocolViolation(ErrorCode.BAD_FRAME, f"channel {frame.channel} is open already")
        self._opening.add(frame.channel)

    async def _open(self, frame: frames.Open) -> None:
        try:
            dimension = self._registry.dimension(frame.dimension)
            schema = await dimension.wait_until_described(_DESCRIBE_WAIT_S)
            check_key_types(frame.key, schema)
            columns = schema.select(frame.columns)
            turn, grant = self._registry.admit()
        except SidelookError as error:
            self._outbox.put(
                frames.Failure(frame.channel, error.code, error.detail, error.is_retryable)
            )
            return
        finally:
            self._opening.discard(frame.channel)
        book = ServerChannel(frame.channel, frame.dimension, frame.origin, grant=grant)
        self._registry.add(turn, self._number, book)
        self._channels[frame.channel] = (
            turn,
            ChannelLookups(book, frame, dimension=dimension, turn=turn, outbox=self._outbox),
        )
        self._outbox.put(frames.Opened(frame.channel, grant.records, grant.bytes, columns))

    def _control(self, frame: Frame) -> None:
        match frame:
            case frames.Watermark():
                self._channel(frame.channel).book.on_watermark(frame.watermark_ms)
            case frames.Status():
                self._channel(frame.channel).book.is_idle = frame.is_idle
            case frames.Cancel():
                self._channel(frame.channel).on_cancel(frame.sequence)
            case frames.Close():
                self._channel(frame.channel).on_close()
            case _:
                kind = type(frame).__name__.upper()
                raise ProtocolViolation(ErrorCode.BAD_FRAME, f"a client never sends {kind} here")

    def _channel(self, number: int) -> ChannelLookups:
        if number not in self._channels:
            raise ProtocolViolation(ErrorCode.UNKNOWN_CHANNEL, f"channel {number} is not open")
        return self._channels[number][1]

    def _drop(self, number: int) -> None:
        turn, channel = self._channels.pop(number)
        channel.abandon()
        self._registry.remove(turn)

    async def _refuse(self, error: BaseException) -> None:
        log.warning("stream.violation", connection=self._number, detail=str(error))
        await self._close(WSCloseCode.PROTOCOL_ERROR, str(error))

    async def _close(self, code: WSCloseCode, reason: str) -> None:
        await self._socket.close(code=code, message=reason.encode()[:_MAX_REASON_BYTES])
