"""Streams over a Unix socket, with real dimensions over fake stores, and a peer frame by frame.

What has to come back is the tests' business.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import aiohttp
import pyarrow as pa
from aiohttp import web

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import (
    ROWLESS,
    answer_from_batch,
    decode_batch,
    encode_batch,
    result_schema,
)
from lookup_core.protocol.frame_codec import decode_frame, encode_frame
from lookup_core.protocol.frames import PROTOCOL_VERSION, SUBPROTOCOL, Frame
from lookup_core.settings import DimensionSettings
from service.connectors.memory.backend import FakeBackend
from service.engine.dimension import Dimension
from service.engine.tracer import NullTracer, Tracer
from service.http.limits import Limits
from service.http.sockets import listener
from service.stream.channel_registry import ChannelRegistry
from service.stream.handler import StreamHandler
from service.stream.stream_parts import Timeouts
from tests.service.engine.running import PATIENCE_S, SCHEMA, customers, settings, told, typed

AGENT = "sidelook/test"
BLOB_BYTES = 64 * 1024  # a few of them fill the buffers between the two ends
BLOBS = DimensionSchema(pa.schema({"id": pa.int64()}), pa.schema({"name": pa.utf8()}))
DOWN = BackendError(ErrorCode.BACKEND_UNAVAILABLE, "orders: down")

_F = TypeVar("_F", bound=Frame)


@dataclass(frozen=True, slots=True)
class Setting:
    """What a test wants otherwise."""

    timeouts: Timeouts = field(default_factory=lambda: Timeouts(describe_s=0.01))
    max_channels: int = 100
    credit_bytes: int = 64 * 1024 * 1024
    max_message_bytes: int = 4 * 1024 * 1024
    answer_bytes: int = 64 * 1024 * 1024
    customers: DimensionSettings = field(default_factory=settings)
    make: Callable[[DimensionSettings, FakeBackend], Dimension] = Dimension
    tracer: Tracer = field(default_factory=NullTracer)


class Peer:
    """The other end of a connection."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.columns = SCHEMA.columns  # of the channel opened last

    async def send(self, *sending: Frame) -> None:
        """Send frames."""
        for frame in sending:
            await self.socket.send_bytes(encode_frame(frame))

    async def frame(self) -> Frame:
        """The next frame."""
        return decode_frame(await self.socket.receive_bytes(timeout=PATIENCE_S))

    async def receive(self, kind: type[_F]) -> _F:
        """The next frame, which must be of this kind."""
        frame = await self.frame()
        assert isinstance(frame, kind), frame
        return frame

    async def closed(self) -> tuple[int | None, str]:
        """Wait for the close, which must be the next message; its code and its reason."""
        message = await self.socket.receive(timeout=PATIENCE_S)
        assert message.type in {aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED}, message
        return self.socket.close_code, str(message.extra or "")

    def vanish(self) -> None:
        """Be gone without a word, as a process that is killed."""
        connection = self.socket._response.connection
        assert connection is not None
        assert connection.transport is not None
        connection.transport.abort()

    async def greet(self) -> None:
        """Say hello, and be welcomed."""
        await self.send(frames.Hello((PROTOCOL_VERSION,), "a test"))
        assert await self.receive(frames.Welcome) == frames.Welcome(PROTOCOL_VERSION, AGENT)

    async def open(self, channel: int = 1, dimension: str = "customers") -> frames.Opened:
        """Open a channel to all columns of a dimension."""
        await self.send(open_frame(channel, dimension))
        opened = await self.receive(frames.Opened)
        self.columns = opened.columns
        return opened

    async def ask(
        self, sequence: int, *keys: int | None, channel: int = 1, timeout_ms: int = 10_000
    ) -> frames.Lookup:
        """Look keys up; returns the frame that was sent."""
        frame = lookup_frame(sequence, *keys, channel=channel, timeout_ms=timeout_ms)
        await self.send(frame)
        return frame

    async def result(self) -> tuple[frames.Result, dict[int, str]]:
        """The next frame, which must be a RESULT, and what it tells."""
        result = await self.receive(frames.Result)
        return result, self._told(result)

    async def last_result(self, asked: frames.Lookup) -> dict[int, str]:
        """What the last RESULT of a lookup tells, which must come next, behind its credit."""
        assert await self.receive(frames.Credit) == credit_of(asked)
        result, words = await self.result()
        assert result.is_last
        return words

    async def answer(self, asked: frames.Lookup) -> dict[int, str]:
        """All answers to a lookup, which must come next, the credit for it before the last."""
        words: dict[int, str] = {}
        while isinstance(frame := await self.frame(), frames.Result):
            words |= self._part(frame, asked, known=words)
            assert not frame.is_last
        assert frame == credit_of(asked)
        last = await self.receive(frames.Result)
        assert last.is_last
        return words | self._part(last, asked, known=words)

    def _part(
        self, result: frames.Result, asked: frames.Lookup, *, known: Mapping[int, str]
    ) -> dict[int, str]:
        words = self._told(result)
        assert (result.channel, result.sequence) == (asked.channel, asked.sequence)
        assert not words.keys() & known.keys()
        return words

    def _told(self, result: frames.Result) -> dict[int, str]:
        schema = result_schema(self.columns) if result.has_rows else ROWLESS
        batch = decode_batch(result.payload, schema)
        return told([answer_from_batch(batch, has_rows=result.has_rows)])


@dataclass(frozen=True, slots=True)
class Streaming:
    """A service that streams."""

    stores: Mapping[str, FakeBackend]
    handler: StreamHandler
    session: aiohttp.ClientSession

    async def connect(self, *, autoping: bool = True) -> Peer:
        """A connection that nothing was said on yet."""
        socket = await self.session.ws_connect(
            "/v1/stream", protocols=[SUBPROTOCOL], max_msg_size=0, autoping=autoping
        )
        return Peer(socket)

    async def peer(self, dimension: str = "customers") -> Peer:
        """A connection with channel 1 open."""
        peer = await self.connect()
        await peer.greet()
        await peer.open(dimension=dimension)
        return peer

    async def wait_until_empty(self) -> None:
        """Wait until no channel is left."""
        await until(lambda: not self.handler.statistics())


async def until(is_so: Callable[[], bool]) -> None:
    """Let others run until it is so."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110  what is waited for has no event
            await asyncio.sleep(0.001)


def open_frame(
    channel: int = 1,
    dimension: str = "customers",
    *,
    columns: tuple[str, ...] | None = None,
    key: pa.Schema = SCHEMA.key,
) -> frames.Open:
    """An OPEN."""
    return frames.Open(channel, dimension, columns, "a test", key)


def lookup_frame(
    sequence: int, *keys: int | None, channel: int = 1, timeout_ms: int = 10_000
) -> frames.Lookup:
    """A LOOKUP of these keys."""
    return frames.Lookup(channel, sequence, timeout_ms, 0, encode_batch(typed(*keys).columns))


def credit_of(asked: frames.Lookup) -> frames.Credit:
    """What comes back for a lookup."""
    records = decode_batch(asked.payload, SCHEMA.key).num_rows
    return frames.Credit(asked.channel, records, len(asked.payload))


@asynccontextmanager
async def streaming(setting: Setting | None = None) -> AsyncIterator[Streaming]:
    """The dimensions `customers`, `blobs` (with large rows) and `orders` (its store is down)."""
    setting = setting or Setting()
    stores = {"customers": customers(), "blobs": _blobs(), "orders": customers()}
    stores["orders"].describe_error = DOWN
    dimensions = {name: setting.make(setting.customers, store) for name, store in stores.items()}
    registry = ChannelRegistry(
        dimensions, max_channels=setting.max_channels, credit_bytes=setting.credit_bytes
    )
    handler = StreamHandler(
        registry,
        agent=AGENT,
        max_message_bytes=setting.max_message_bytes,
        answer_bytes=setting.answer_bytes,
        timeouts=setting.timeouts,
        tracer=setting.tracer,
    )
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(each.run()) for each in dimensions.values()]
        running.append(tasks.create_task(handler.run()))
        session = await _listening(handler, stack)
        async with asyncio.timeout(PATIENCE_S):
            yield Streaming(stores, handler, session)
        await stack.aclose()
        for task in running:
            task.cancel()


def _blobs() -> FakeBackend:
    names = [str(number) * BLOB_BYTES for number in range(3)]
    rows = pa.table({"id": pa.array(range(3), pa.int64()), "name": pa.array(names, pa.utf8())})
    return FakeBackend(rows, BLOBS)


async def _listening(handler: StreamHandler, stack: AsyncExitStack) -> aiohttp.ClientSession:
    app = web.Application()
    app.router.add_get("/v1/stream", handler.handle)
    runner = listener(app, Limits(), shutdown_timeout_s=0.1)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "stream.sock"
    await web.UnixSite(runner, path).start()
    connector = aiohttp.UnixConnector(str(path))
    return await stack.enter_async_context(
        aiohttp.ClientSession("http://localhost", connector=connector)
    )
