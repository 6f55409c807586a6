"""The whole service: its listeners, its start and its end."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pyarrow as pa
import pyarrow.parquet
import pytest

from service import app
from service.bound_sockets import bound_sockets
from service.config.settings import Settings
from service.stream.handler import StreamHandler, StreamLimits
from tests.service.engine.running import customers, running, typed
from tests.service.stream.streaming import Peer
from tools.processes.sidecar_process import free_port

PATIENCE_S = 20.0
MIB = 1024 * 1024
_EVICTED = 'sidelook_cache_evictions_total{dimension="customers",reason="pressure"} 1.0'


pytestmark = pytest.mark.usefixtures("logging_as_before")


@pytest.fixture
def dimensions(tmp_path: Path) -> dict[str, Any]:
    """One dimension, in a file."""
    path = tmp_path / "customers.parquet"
    rows = {"id": pa.array([7, 8], pa.int64()), "name": ["Ada", "Bert"], "tier": [1, 2]}
    pyarrow.parquet.write_table(pa.table(rows), path)
    return {"customers": {"source": {"kind": "parquet", "path": str(path)}, "key": ["id"]}}


def settings(
    folder: Path, dimensions: Mapping[str, Any], *, auth: object = None, **listen: object
) -> Settings:
    """Listen at `sidelook.sock` in the folder, and at the given addresses."""
    closed = {"unix": str(folder / "sidelook.sock"), "http": None, "health": None}
    values = {"listen": closed | listen, "dimensions": dimensions}
    return Settings(values if auth is None else values | {"auth": auth})


@asynccontextmanager
async def serving(chosen: Settings) -> AsyncIterator[aiohttp.ClientSession]:
    """The service, and a client at its socket; it is stopped by a signal at the end."""
    service = asyncio.ensure_future(_run(chosen))
    connector = aiohttp.UnixConnector(str(chosen.listen.unix))
    async with (
        asyncio.timeout(PATIENCE_S),
        aiohttp.ClientSession("http://localhost", connector=connector) as session,
    ):
        while not await _answers(session):
            assert not service.done(), service.exception()
            await asyncio.sleep(0.005)
        yield session
        assert not service.done()  # otherwise the signal would end the tests
        os.kill(os.getpid(), signal.SIGTERM)
        await service


async def _run(chosen: Settings) -> None:
    with bound_sockets(chosen.listen) as sockets:
        await app.run(chosen, sockets)


async def _answers(session: aiohttp.ClientSession, url: str = "/livez") -> bool:
    try:
        async with session.get(url) as response:
            return response.status == 200
    except aiohttp.ClientConnectorError:
        return False  # not listening yet


async def test_lookups_and_streams_are_served(tmp_path: Path, dimensions: dict[str, Any]) -> None:
    """One socket answers lookups, counts them, and speaks the streaming protocol."""
    async with serving(settings(tmp_path, dimensions)) as session:
        body = {"keys": [8, 9, 8], "columns": ["name"]}
        async with session.post("/v1/dimensions/customers/lookup", json=body) as response:
            answer = await response.json()
        metrics = await _metrics(session)
        socket = await session.ws_connect("/v1/stream", protocols=["sidelook.v1"])
        await socket.send_bytes(b"")
        code, _ = await Peer(socket).closed()

    assert answer["outcomes"] == ["fetched", "missing", "fetched"]
    assert answer["rows"] == [{"name": "Bert"}, None, {"name": "Bert"}]
    assert 'sidelook_lookups_total{dimension="customers",outcome="fetched"} 2.0' in metrics
    assert code == aiohttp.WSCloseCode.PROTOCOL_ERROR


async def test_every_listener_is_served(tmp_path: Path, dimensions: dict[str, Any]) -> None:
    """Lookups are answered by TCP and by the socket; the health listener has no data."""
    http, health = free_port(), free_port()
    chosen = settings(tmp_path, dimensions, http=f"127.0.0.1:{http}", health=f"127.0.0.1:{health}")
    async with serving(chosen), aiohttp.ClientSession() as session:
        is_listening = False
        while not is_listening:
            await asyncio.sleep(0.005)
            is_listening = await _answers(session, f"http://127.0.0.1:{health}/livez")  # the last
        statuses = {}
        for path in ("/livez", "/v1/dimensions"):
            for port in (http, health):
                async with session.get(f"http://127.0.0.1:{port}{path}") as response:
                    statuses[path, port] = response.status

    assert statuses == {
        ("/livez", http): 200,
        ("/livez", health): 200,
        ("/v1/dimensions", http): 200,
        ("/v1/dimensions", health): 404,
    }


async def test_tokens_guard_the_routes(tmp_path: Path, dimensions: dict[str, Any]) -> None:
    """With a token file, a request needs the token."""
    token = tmp_path / "token"
    token.write_text("s3cret-s3cret-s3cret")
    token.chmod(0o400)
    auth = {"token_file": str(token)}
    headers = {"Authorization": "Bearer s3cret-s3cret-s3cret"}
    async with serving(settings(tmp_path, dimensions, auth=auth)) as session:
        async with session.get("/v1/dimensions/customers") as response:
            without = response.status
        async with session.get("/v1/dimensions/customers", headers=headers) as response:
            assert (without, response.status) == (401, 200)


async def test_dimension_without_cache_takes_no_memory(
    tmp_path: Path, dimensions: dict[str, Any]
) -> None:
    """A dimension of mode `none` leaves the whole memory of caches to the others."""
    customers = dimensions["customers"]
    uncached = customers | {"cache": {"mode": "none"}}
    chosen = settings(tmp_path, {"customers": customers, "uncached": uncached})
    async with serving(chosen) as session, session.get("/v1/dimensions/customers") as response:
        cache = (await response.json())["cache"]

    assert cache["max_bytes"] == chosen.limits.memory_bytes // 2


async def test_open_streams_get_going_away(tmp_path: Path, dimensions: dict[str, Any]) -> None:
    """A client that is connected when the service ends gets the code GOING_AWAY."""
    async with serving(settings(tmp_path, dimensions)) as session:
        socket = await session.ws_connect("/v1/stream", protocols=["sidelook.v1"])
        closing = asyncio.ensure_future(Peer(socket).read_to_the_end())

    await closing
    assert socket.close_code == aiohttp.WSCloseCode.GOING_AWAY


def no_streams() -> StreamHandler:
    """Streams without connections."""
    limits = StreamLimits(max_channels=1, credit_bytes=1, answer_bytes=1, max_message_bytes=1)
    return StreamHandler({}, limits, agent="a test")


async def test_drain_waits_for_plain_requests() -> None:
    """HTTP lookups are answered before the end; the wait for them is bounded."""
    backend = customers()
    backend.hold()
    async with running(backend) as dimension:
        dimensions = {"customers": dimension}
        waiting = asyncio.ensure_future(
            dimension.lookup(typed(7), columns=None, timeout_s=PATIENCE_S)
        )
        await backend.wait_for_fetches(1)
        await app.drain(no_streams(), dimensions, timeout_s=0.01)
        drain = asyncio.ensure_future(app.drain(no_streams(), dimensions, timeout_s=PATIENCE_S))
        done, _ = await asyncio.wait([drain], timeout=0.1)

        assert (done, waiting.done()) == (set(), False)
        backend.release()
        await drain
        assert waiting.done()


async def test_short_memory_is_relieved(tmp_path: Path, dimensions: dict[str, Any]) -> None:
    """Under memory pressure caches shrink and lookups are refused; afterwards all is served."""
    values = settings(tmp_path, dimensions).model_dump(by_alias=True, exclude_unset=True)
    async with serving(Settings(values | {"limits": {"memory": "16MiB"}})) as session:
        ballast: list[bytes] = []  # of this process, which is the service's, too
        while await _status(session) != 503:
            ballast.append(b"x" * MIB)
        while _EVICTED not in await _metrics(session):  # noqa: ASYNC110  there is no event for it
            await asyncio.sleep(0.005)
        ballast.clear()
        while await _status(session) != 200:  # noqa: ASYNC110  as above
            await asyncio.sleep(0.005)


async def _metrics(session: aiohttp.ClientSession) -> str:
    async with session.get("/metrics") as response:
        return await response.text()


async def _status(session: aiohttp.ClientSession) -> int:
    body = {"keys": [7]}
    async with session.post("/v1/dimensions/customers/lookup", json=body) as response:
        return response.status
