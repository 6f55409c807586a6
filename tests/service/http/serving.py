"""The real HTTP surface over the real engine and a fake store, on sockets of its own.

Not a stand-in for any part of the service but the store.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import aiohttp
import numpy as np
import pyarrow as pa
from aiohttp import web

from lookup_core.changelog.change_decoder import RowChanges
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.settings import CacheMode, CacheSettings, DimensionSettings
from lookup_core.statistics import LoadResult
from service.connectors.memory.backend import FakeBackend
from service.connectors.memory.source import FakeSource
from service.connectors.ports.source import SplitPiece
from service.engine.dimension import Dimension
from service.engine.observer import NullObserver, Observer
from service.engine.refresher import RefreshSources
from service.engine.tracer import NullTracer, Tracer
from service.http.application import ServiceParts, application, health_application
from service.http.limits import Limits
from service.http.readiness import Readiness
from service.http.security import LOOPBACK_HOSTS, Access
from service.http.sockets import listener

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
PATIENCE_S = 10.0  # a test that waits longer has failed


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

    async def lookup(self, body: str, name: str = "customers") -> aiohttp.ClientResponse:
        """Post a JSON body to a dimension's lookup, over the Unix socket; read it whole."""
        path = f"/v1/dimensions/{name}/lookup"
        async with self.unix.post(path, data=body, headers=JSON_TYPE) as response:
            await response.read()
        return response

    @property
    def customers(self) -> FakeBackend:
        """The store of `customers`, looked up by one integer."""
        return self.backends["customers"]


@dataclass(frozen=True, slots=True)
class Setting:
    """What a test wants otherwise."""

    limits: Limits = field(default_factory=Limits)
    access: Access = field(default_factory=Access)
    timeout_s: float = PATIENCE_S
    max_waiting_keys: int = 1_000
    observer: Observer = field(default_factory=NullObserver)
    tracer: Tracer = field(default_factory=NullTracer)
    change_parts: Callable[[ServiceParts], ServiceParts] = lambda parts: parts
    prepare: Callable[[Mapping[str, FakeBackend]], None] = lambda _: None
    # {dimension: what follows and loads it}; whoever has a table is held whole
    sources: Mapping[str, RefreshSources] = field(default_factory=dict)


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
        port = await _listen_tcp(application(parts, on_tcp), parts.limits, stack)
        health_port = await _listen_tcp(health_application(parts), parts.limits, stack)
        await _listen_unix(application(parts, setting.access), parts.limits, path, stack)
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


async def refuse_stream(_request: web.Request) -> web.StreamResponse:
    """The stream's handler where no test streams."""
    raise web.HTTPBadRequest(text="not a WebSocket")


def whole_customers(*, splits: int = 1) -> FakeSource:
    """All rows of `customers` as the last of so many splits; the others are empty."""
    schema, count = _schema("customers"), CUSTOMERS.num_rows
    (batch,) = CUSTOMERS.to_batches()
    everywhere, nowhere = np.ones(count, np.bool_), np.zeros(count, np.bool_)
    rows = RowChanges(
        batch.select(schema.key.names),
        has_row=everywhere,
        is_gone=nowhere,
        rows=batch.select(schema.columns.names),
        transaction_ids=np.zeros(count, np.uint32),
    )
    source = FakeSource(is_bounded=True)
    for number in range(1, splits):
        source.add(f"split {number}", SplitPiece("", 0))
    source.add(f"split {splits}", SplitPiece("", 0, [rows]))
    return source


def followed_customers() -> RefreshSources:
    """The same, and their changes, of which there are none up to now."""
    changes = FakeSource(is_bounded=False)
    changes.add("partition 0", SplitPiece("", 0, watermark_ms=int(time.time() * 1000)))
    return RefreshSources(changes=lambda: changes, table=whole_customers())


async def until_started(service: Served) -> None:
    """Wait until every dimension counts as started; the test's own patience ends it."""
    while service.parts.readiness.cold():  # noqa: ASYNC110  nobody is told
        await asyncio.sleep(0.001)


async def until_loaded(service: Served, *, times: int) -> None:
    """Wait until the whole table of `customers` was loaded so often."""
    while _loads(service) < times:  # noqa: ASYNC110  as above
        await asyncio.sleep(0.001)


def _loads(service: Served) -> int:
    load = service.parts.dimensions["customers"].refresh_statistics().load
    return 0 if load is None else load.counts[LoadResult.OK]


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
        timeout_s=setting.timeout_s,
        max_waiting_keys=setting.max_waiting_keys,
    )
    observer, tracer = setting.observer, setting.tracer
    return Dimension(settings, backend, sources=sources, observer=observer, tracer=tracer)


def _parts(dimensions: Mapping[str, Dimension], limits: Limits) -> ServiceParts:
    return ServiceParts(
        dimensions=dimensions,
        readiness=Readiness(dimensions),
        channels=list,
        stream=refuse_stream,
        metrics=lambda: b"# metrics\n",
        version="1.2.3",
        limits=limits,
    )


async def _listen_tcp(app: web.Application, limits: Limits, stack: AsyncExitStack) -> int:
    runner = await _running(app, limits, stack)
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port: int = runner.addresses[0][1]
    return port


async def _listen_unix(
    app: web.Application, limits: Limits, path: Path, stack: AsyncExitStack
) -> None:
    await web.UnixSite(await _running(app, limits, stack), path).start()


async def _running(app: web.Application, limits: Limits, stack: AsyncExitStack) -> web.AppRunner:
    runner = listener(app, limits, shutdown_timeout_s=0.1)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    return runner


async def _client(
    base_url: str, stack: AsyncExitStack, path: Path | None = None
) -> aiohttp.ClientSession:
    connector = None if path is None else aiohttp.UnixConnector(str(path))
    timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
    session = aiohttp.ClientSession(base_url, connector=connector, timeout=timeout)
    return await stack.enter_async_context(session)
