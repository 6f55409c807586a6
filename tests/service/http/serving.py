"""The real HTTP interface and engine over fake backends, on sockets of its own."""

import asyncio
import select
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import orjson
import pyarrow as pa
from aiohttp import web
from yarl import URL

from lookup_core.changelog.change_decoder import RowChanges
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.settings import BatchSettings, CacheMode, CacheSettings, DimensionSettings
from lookup_core.statistics import InvalidationOrigin
from service.connectors.ports.source import SplitPiece
from service.engine.dimension import Dimension
from service.engine.observer import Observer
from service.engine.refresher import RefreshSources
from service.engine.tracer import NullTracer, Tracer
from service.http.application import ServiceParts, application, health_application
from service.http.limits import RequestLimits
from service.http.readiness import Readiness
from service.http.security import LOOPBACK_HOSTS, Access
from service.http.sockets import connections
from tests.service.connectors.fake_backend import FakeBackend
from tests.service.connectors.fake_source import FakeSource
from tests.service.engine.running import until

CUSTOMERS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "name": pa.array(["Ada", "Bert", None], pa.utf8()),
        "tier": pa.array([1, 2, 3], pa.int32()),
    }
)
WEATHER = pa.table(
    {
        "origin": pa.array(["JFK", "a,b", "a/b"], pa.utf8()),
        "hour": pa.array([0, 3_600_000_000, 0], pa.timestamp("us", "UTC")),
        "temperature": pa.array([1.5, float("nan"), 3.5], pa.float64()),
    }
)
KEYS = {"customers": ("id",), "weather": ("origin", "hour")}
TABLES = {"customers": CUSTOMERS, "weather": WEATHER}
JSON_TYPE = {"Content-Type": "application/json"}
ARROW_TYPE = {"Content-Type": "application/vnd.apache.arrow.stream"}
ONE = "/v1/dimensions/customers"
PATIENCE_S = 10.0  # a test that waits longer has failed


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401 -- whatever the body holds
        """The body as JSON."""
        return orjson.loads(self.body)

    @property
    def problem(self) -> tuple[int, str]:
        """The status, and the code of the problem."""
        assert self.headers["Content-Type"] == "application/problem+json"
        assert self.json["status"] == self.status
        return self.status, self.json["code"]

    @property
    def rows(self) -> pa.Table:
        """The body as an Arrow stream."""
        return pa.ipc.open_stream(self.body).read_all()


@dataclass(frozen=True, slots=True)
class Served:
    """A running service, and clients of its three listeners."""

    backends: Mapping[str, FakeBackend]
    parts: ServiceParts
    tcp: aiohttp.ClientSession
    unix: aiohttp.ClientSession
    health: aiohttp.ClientSession
    port: int
    path: Path

    async def get(
        self,
        path: str,
        *,
        over: str = "unix",
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        data: bytes | str | None = None,
    ) -> Reply:
        """Send a request to one of the listeners, with the path unchanged."""
        client: aiohttp.ClientSession = getattr(self, over)
        target = URL(path, encoded=True)
        async with client.request(method, target, headers=headers, data=data) as response:
            return Reply(response.status, response.headers, await response.read())

    async def post(self, path: str, body: bytes | str, **headers: str) -> Reply:
        """Post a body, JSON by default, to a route of `customers`."""
        sent = {**JSON_TYPE, **{name.replace("_", "-"): each for name, each in headers.items()}}
        return await self.get(f"{ONE}/{path}", method="POST", headers=sent, data=body)

    async def lookup(self, body: str, name: str = "customers", *, over: str = "unix") -> Reply:
        """Post a JSON body to the lookup of a dimension."""
        path = f"/v1/dimensions/{name}/lookup"
        return await self.get(path, over=over, method="POST", headers=JSON_TYPE, data=body)

    @property
    def customers(self) -> FakeBackend:
        """The backend of `customers`, whose key is one integer."""
        return self.backends["customers"]

    @property
    def dimension(self) -> Dimension:
        """The dimension `customers`."""
        return self.parts.dimensions["customers"]

    async def described(self) -> None:
        """Wait until all dimensions are described."""
        for each in self.parts.dimensions.values():
            await each.schema.wait(PATIENCE_S)

    def reset(self) -> None:
        """Drop cached rows and recorded queries; nothing may be in flight."""
        self.parts.readiness.allow_requests(is_allowed=True)
        for name, backend in self.backends.items():
            backend.release()
            backend.batches.clear()
            backend.cancelled_total = 0
            self.parts.dimensions[name].invalidate(None, origin=InvalidationOrigin.ADMIN)


@dataclass(frozen=True, slots=True)
class Setting:
    """Settings that a test changes."""

    limits: RequestLimits = field(default_factory=RequestLimits)
    access: Access = field(default_factory=Access)
    timeout_s: float = PATIENCE_S
    max_waiting_keys: int = 1_000
    observer: Observer | None = None
    tracer: Tracer = field(default_factory=NullTracer)
    change_parts: Callable[[ServiceParts], ServiceParts] = lambda parts: parts
    prepare: Callable[[Mapping[str, FakeBackend]], None] = lambda _: None
    # {dimension: its change feed and table}; one with a table is in full mode
    sources: Mapping[str, RefreshSources] = field(default_factory=dict)


def with_parts(**parts: Any) -> Setting:  # noqa: ANN401 -- as `ServiceParts` has them
    """A service with these parts replaced."""
    return Setting(change_parts=lambda each: replace(each, **parts))


def away(code: ErrorCode = ErrorCode.BACKEND_UNAVAILABLE) -> Setting:
    """A service whose backend of `customers` does not describe itself."""
    error = BackendError(code, "customers: the reason")

    def prepare(backends: Mapping[str, FakeBackend]) -> None:
        backends["customers"].describe_error = error

    return Setting(prepare=prepare)


@asynccontextmanager
async def served(setting: Setting | None = None) -> AsyncIterator[Served]:
    """The service with the dimensions `customers` and `weather`, until the block ends."""
    setting = setting or Setting()
    backends = {name: _backend(name) for name in TABLES}
    setting.prepare(backends)
    dimensions = {name: _dimension(name, each, setting) for name, each in backends.items()}
    parts = replace(_parts(dimensions, setting.limits), tracer=setting.tracer)
    parts = setting.change_parts(parts)
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as running:
        tasks = [running.create_task(each.run()) for each in dimensions.values()]
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        path = folder / "sidelook.sock"
        on_tcp = replace(setting.access, hosts=LOOPBACK_HOSTS)
        port = await listen_tcp(application(parts, on_tcp), parts.limits, stack)
        health_port = await listen_tcp(health_application(parts), parts.limits, stack)
        await listen_unix(application(parts, setting.access), parts.limits, path, stack)
        yield Served(
            backends,
            parts,
            tcp=await _client(f"http://127.0.0.1:{port}", stack),
            unix=await _client("http://localhost", stack, path),
            health=await _client(f"http://127.0.0.1:{health_port}", stack),
            port=port,
            path=path,
        )
        await stack.aclose()
        for task in tasks:
            task.cancel()


def arrow_stream(
    *batches: pa.RecordBatch, schema: pa.Schema | None = None, compression: str | None = None
) -> bytes:
    """An Arrow stream."""
    options = pa.ipc.IpcWriteOptions(compression=compression)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema or batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def is_closed(caller: socket.socket) -> bool:
    """Whether the connection is reset; reads nothing from the buffers."""
    poll = select.poll()
    poll.register(caller, select.POLLRDHUP)
    return poll.poll(PATIENCE_S * 1000) != []


async def refuse_stream(_request: web.Request) -> web.StreamResponse:
    """The handler of `/v1/stream` in tests without streams."""
    raise web.HTTPBadRequest(text="not a WebSocket")


@asynccontextmanager
async def connected(
    service: Served,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to the TCP listener, for bytes that no HTTP client would send."""
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield reader, writer
    finally:
        writer.transport.abort()


async def exchanged(service: Served, sent: bytes) -> bytes:
    """The bytes that the service sends after these, until it closes the connection."""
    async with connected(service) as (reader, writer):
        writer.write(sent)
        return await reader.read()


def whole_customers() -> FakeSource:
    """All rows of `customers` in one split."""
    schema, count = _schema("customers"), CUSTOMERS.num_rows
    (batch,) = CUSTOMERS.to_batches()
    rows = RowChanges(
        batch.select(schema.key.names),
        has_row=np.ones(count, np.bool_),
        is_gone=np.zeros(count, np.bool_),
        rows=batch.select(schema.columns.names),
        transaction_ids=np.zeros(count, np.uint32),
    )
    source = FakeSource(is_bounded=True)
    source.add("all", SplitPiece("", 0, [rows]))
    return source


def followed_customers() -> RefreshSources:
    """All rows of `customers`, and a change feed without changes."""
    changes = FakeSource(is_bounded=False)
    changes.add("partition 0", SplitPiece("", 0, watermark_ms=int(time.time() * 1000)))
    return RefreshSources(changes=lambda: changes, table=whole_customers())


async def until_started(service: Served) -> None:
    """Wait until every dimension counts as started."""
    await until(lambda: not service.parts.readiness.cold())


def _schema(name: str) -> DimensionSchema:
    table = TABLES[name].schema
    key = pa.schema([table.field(each) for each in KEYS[name]])
    return DimensionSchema(key, pa.schema([each for each in table if each.name not in KEYS[name]]))


def _backend(name: str) -> FakeBackend:
    return FakeBackend(TABLES[name], _schema(name))


def _dimension(name: str, backend: FakeBackend, setting: Setting) -> Dimension:
    sources = setting.sources.get(name, RefreshSources())
    mode = CacheMode.PARTIAL if sources.table is None else CacheMode.FULL
    settings = DimensionSettings(
        name,
        cache=CacheSettings(mode),
        batch=BatchSettings(max_in_flight=8),
        timeout_s=setting.timeout_s,
        max_waiting_keys=setting.max_waiting_keys,
    )
    observer, tracer = setting.observer, setting.tracer
    return Dimension(settings, backend, sources=sources, observer=observer, tracer=tracer)


def _parts(dimensions: Mapping[str, Dimension], limits: RequestLimits) -> ServiceParts:
    return ServiceParts(
        dimensions=dimensions,
        readiness=Readiness(dimensions),
        channels=list,
        stream=refuse_stream,
        metrics=lambda: b"# metrics\n",
        version="1.2.3",
        limits=limits,
    )


async def listen_tcp(app: web.Application, limits: RequestLimits, stack: AsyncExitStack) -> int:
    """Serve the application at a port of loopback until the stack ends; returns the port."""
    bound = socket.create_server(("127.0.0.1", 0))
    await _listen(app, limits, bound, stack)
    port: int = bound.getsockname()[1]
    return port


async def listen_unix(
    app: web.Application, limits: RequestLimits, path: Path, stack: AsyncExitStack
) -> None:
    """Serve the application at a Unix socket until the stack ends."""
    bound = socket.socket(socket.AF_UNIX)
    bound.bind(str(path))
    await _listen(app, limits, bound, stack)


async def _listen(
    app: web.Application, limits: RequestLimits, bound: socket.socket, stack: AsyncExitStack
) -> None:
    opened = await stack.enter_async_context(connections(app, limits, shutdown_timeout_s=0.1))
    stack.callback((await opened.serve(bound, backlog=100)).close)


async def _client(
    base_url: str, stack: AsyncExitStack, path: Path | None = None
) -> aiohttp.ClientSession:
    # A connection that is idle for longer than the service keeps it must not be used again.
    kept_s = RequestLimits().header_deadline_s / 2
    connector = (
        aiohttp.TCPConnector(keepalive_timeout=kept_s)
        if path is None
        else aiohttp.UnixConnector(str(path), keepalive_timeout=kept_s)
    )
    timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
    session = aiohttp.ClientSession(base_url, connector=connector, timeout=timeout)
    return await stack.enter_async_context(session)
