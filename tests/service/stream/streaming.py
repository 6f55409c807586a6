"""Streams over a Unix socket: real dimensions, fake backends, and a peer frame by frame.

What has to come back is the business of the tests.
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
from lookup_core.lookup_options import NO_OPTIONS, LookupOptions
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import (
    ROWLESS,
    answer_from_batch,
    decode_batch,
    encode_batch,
    result_schema,
)
from lookup_core.protocol.credit_ledger import NOTHING, Grant
from lookup_core.protocol.frame_codec import decode_frame, encode_frame
from lookup_core.protocol.frames import PROTOCOL_VERSION, SUBPROTOCOL, Frame
from lookup_core.settings import DimensionSettings
from lookup_core.statistics import InvalidationOrigin
from service.engine.dimension import Dimension
from service.engine.tracer import NullTracer, Tracer
from service.http.limits import RequestLimits
from service.stream.connection import Timeouts
from service.stream.handler import StreamHandler, StreamLimits
from tests.service.connectors.fake_backend import FakeBackend
from tests.service.engine import running
from tests.service.engine.running import (
    PATIENCE_S,
    SCHEMA,
    customers,
    in_words,
    is_fit,
    settings,
    typed,
)
from tests.service.http.serving import listen_unix

AGENT = "sidelook/test"
BLOB_BYTES = 64 * 1024  # a few of them fill the buffers between the two ends
BLOBS = DimensionSchema(pa.schema({"id": pa.int64()}), pa.schema({"name": pa.utf8()}))
DOWN = BackendError(ErrorCode.BACKEND_UNAVAILABLE, "orders: down")

_F = TypeVar("_F", bound=Frame)


def dimension(chosen: DimensionSettings, backend: FakeBackend) -> Dimension:
    """A dimension on the clock of its loop."""
    return Dimension(chosen, backend, clock=asyncio.get_running_loop().time)


@dataclass(frozen=True, slots=True)
class Setting:
    """Settings that a test changes."""

    timeouts: Timeouts = field(default_factory=lambda: Timeouts(describe_s=0.01))
    max_channels: int = 100
    credit_bytes: int = 64 * 1024 * 1024
    max_message_bytes: int = 4 * 1024 * 1024
    answer_bytes: int = 64 * 1024 * 1024
    customers: DimensionSettings = field(default_factory=settings)
    make: Callable[[DimensionSettings, FakeBackend], Dimension] = dimension
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

    def write(self, sent: bytes) -> None:
        """Write bytes past the client library."""
        assert self._transport is not None
        self._transport.write(sent)

    def vanish(self) -> None:
        """Abort the connection, as a killed process does."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def _transport(self) -> asyncio.Transport | None:
        connection = self.socket._response.connection
        return None if connection is None else connection.transport

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

    async def read_to_the_end(self) -> tuple[list[Frame], aiohttp.WSMessage]:
        """All frames up to the close, and the message that closes."""
        received: list[Frame] = []
        message = await self.socket.receive(timeout=PATIENCE_S)
        while message.type is aiohttp.WSMsgType.BINARY:
            received.append(decode_frame(message.data))
            message = await self.socket.receive(timeout=PATIENCE_S)
        return received, message

    async def greet(self) -> None:
        """Exchange HELLO and WELCOME."""
        await self.send(frames.Hello((PROTOCOL_VERSION,), "a test"))
        assert await self.receive(frames.Welcome) == frames.Welcome(PROTOCOL_VERSION, AGENT)

    async def open(
        self,
        channel: int = 1,
        dimension: str = "customers",
        columns: tuple[str, ...] | None = None,
        key: pa.Schema = SCHEMA.key,
        options: LookupOptions = NO_OPTIONS,
    ) -> frames.Opened:
        """Open a channel."""
        await self.send(open_frame(channel, dimension, columns=columns, key=key, options=options))
        opened = await self.receive(frames.Opened)
        self.columns = opened.columns
        return opened

    async def look_up(
        self, sequence: int, *keys: int | None, channel: int = 1, timeout_ms: int = 10_000
    ) -> frames.Lookup:
        """Send a LOOKUP; returns its frame."""
        frame = lookup_frame(sequence, *keys, channel=channel, timeout_ms=timeout_ms)
        await self.send(frame)
        return frame

    ask = look_up  # the name in suites outside this folder

    async def answers(self, *keys: int) -> list[dict[int, str]]:
        """The answers to these keys, each in a lookup of its own, the first ones of channel 1."""
        return [await self.answer(await self.look_up(at, key)) for at, key in enumerate(keys, 1)]

    async def result(self) -> tuple[frames.Result, dict[int, str]]:
        """The next frame, which must be a RESULT, and its answers in words."""
        result = await self.receive(frames.Result)
        return result, self._in_words(result)

    async def answer(self, sent: frames.Lookup) -> dict[int, str]:
        """All answers to a lookup, which must come next, its credit before the last of them."""
        words: dict[int, str] = {}
        back = NOTHING
        is_last = False
        while not is_last:
            if isinstance(frame := await self.frame(), frames.Credit):
                back = back.plus(Grant(frame.records, frame.bytes))
                continue
            assert isinstance(frame, frames.Result), frame
            is_last = frame.is_last
            words |= self._part(frame, sent, known=words)
        assert frames.Credit(sent.channel, back.records, back.bytes) == credit_of(sent)
        return words

    def _part(
        self, result: frames.Result, sent: frames.Lookup, *, known: Mapping[int, str]
    ) -> dict[int, str]:
        words = self._in_words(result)
        assert (result.channel, result.sequence) == (sent.channel, sent.sequence)
        assert not words.keys() & known.keys()
        return words

    def _in_words(self, result: frames.Result) -> dict[int, str]:
        schema = result_schema(self.columns) if result.has_rows else ROWLESS
        batch = decode_batch(result.payload, schema)
        return in_words([answer_from_batch(batch, has_rows=result.has_rows)])


@dataclass(slots=True)
class LoopClock:
    """The time of the loop, which a test may set forward."""

    ahead_s: float = 0.0

    def __call__(self) -> float:
        """Monotonic seconds."""
        return asyncio.get_running_loop().time() + self.ahead_s


@dataclass(frozen=True, slots=True)
class Streaming:
    """A service that streams."""

    stores: Mapping[str, FakeBackend]
    handler: StreamHandler
    session: aiohttp.ClientSession
    dimensions: Mapping[str, Dimension]
    clock: LoopClock
    peers: list[Peer] = field(default_factory=list)

    @property
    def customers(self) -> FakeBackend:
        """The backend of `customers`."""
        return self.stores["customers"]

    @property
    def used_bytes(self) -> int:
        """The bytes that are held for answers, of all connections."""
        return self.handler.registry.turns.used_bytes

    async def connect(self, *, autoping: bool = True) -> Peer:
        """A connection without any frame yet."""
        socket = await self.session.ws_connect(
            "/v1/stream", protocols=[SUBPROTOCOL], max_msg_size=0, autoping=autoping
        )
        self.peers.append(Peer(socket))
        return self.peers[-1]

    async def greeted(self) -> Peer:
        """A connection after WELCOME."""
        peer = await self.connect()
        await peer.greet()
        return peer

    async def peer(self, dimension: str = "customers") -> Peer:
        """A connection with channel 1 open."""
        peer = await self.greeted()
        await peer.open(dimension=dimension)
        return peer

    async def deaf_peer(self, lookups: int, *, records: int = 1) -> Peer:
        """A peer that looks up more large rows than the buffers hold, and reads none."""
        peer = await self.peer("blobs")
        for sequence in range(1, lookups + 1):
            await peer.look_up(sequence, *([0] * records))
        return peer

    async def wait_until_empty(self) -> None:
        """Wait until no channel is left."""
        await until(lambda: not self.handler.registry.statistics())

    async def reset(self) -> None:
        """End all connections, and forget cached rows and recorded queries."""
        for store in self.stores.values():
            store.release()
        for peer in self.peers:
            peer.vanish()
        self.peers.clear()
        await until(lambda: not self.handler._parts.connections)
        assert (self.handler.registry.statistics(), self.used_bytes) == ([], 0)
        for name, store in self.stores.items():
            if is_fit(self.dimensions[name]):
                self.dimensions[name].invalidate(None, origin=InvalidationOrigin.ADMIN)
            store.batches.clear()
            store.cancelled_total = 0


until = running.until  # the name that suites of other folders import


def open_frame(
    channel: int = 1,
    dimension: str = "customers",
    *,
    columns: tuple[str, ...] | None = None,
    key: pa.Schema = SCHEMA.key,
    options: LookupOptions = NO_OPTIONS,
) -> frames.Open:
    """An OPEN."""
    return frames.Open(channel, dimension, columns, "a test", key, options=options)


def lookup_frame(
    sequence: int, *keys: int | None, channel: int = 1, timeout_ms: int = 10_000
) -> frames.Lookup:
    """A LOOKUP of these keys."""
    return frames.Lookup(channel, sequence, timeout_ms, 0, encode_batch(typed(*keys).columns))


def credit_of(sent: frames.Lookup) -> frames.Credit:
    """The credit that comes back for a lookup."""
    records = decode_batch(sent.payload, SCHEMA.key).num_rows
    return frames.Credit(sent.channel, records, len(sent.payload))


@asynccontextmanager
async def streaming(setting: Setting | None = None) -> AsyncIterator[Streaming]:
    """A service for one test, which may take `PATIENCE_S`."""
    async with serving(setting) as service, asyncio.timeout(PATIENCE_S):
        yield service


@asynccontextmanager
async def serving(setting: Setting | None = None) -> AsyncIterator[Streaming]:
    """The dimensions `customers`, `blobs` (with large rows) and `orders` (its backend is down)."""
    setting = setting or Setting()
    stores = {"customers": customers(), "blobs": _blobs(), "orders": customers()}
    stores["orders"].describe_error = DOWN
    dimensions = {name: setting.make(setting.customers, store) for name, store in stores.items()}
    # Real time would pass slower than that of the loop.
    clock = LoopClock()
    limits = StreamLimits(
        max_channels=setting.max_channels,
        credit_bytes=setting.credit_bytes,
        answer_bytes=setting.answer_bytes,
        max_message_bytes=setting.max_message_bytes,
    )
    handler = StreamHandler(
        dimensions,
        limits,
        agent=AGENT,
        timeouts=setting.timeouts,
        tracer=setting.tracer,
        clock=clock,
    )
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(each.run()) for each in dimensions.values()]
        running.append(tasks.create_task(handler.run()))
        session = await _listening(handler, stack)
        yield Streaming(stores, handler, session, dimensions, clock)
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
    path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "stream.sock"
    await listen_unix(app, RequestLimits(), path, stack)
    connector = aiohttp.UnixConnector(str(path))
    return await stack.enter_async_context(
        aiohttp.ClientSession("http://localhost", connector=connector)
    )
