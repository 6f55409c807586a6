"""Servers that are not there, or do not answer: each has its words, and none takes too long."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.postgres.connections import PostgresConnections
from service.connectors.postgres.settings import PostgresSettings
from tests.grace import GRACE_S
from tools.processes.sidecar_process import free_port

PATIENCE_S = 30.0  # beyond which the fault would be another one


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port where connections are accepted, and nothing is ever said."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@asynccontextmanager
async def connections_to(
    dsn: str, *, connect_timeout_s: float = 3.0
) -> AsyncIterator[PostgresConnections]:
    """Opened connections."""
    settings = PostgresSettings(
        dsn, "public.customers", ("id",), connect_timeout_s=connect_timeout_s
    )
    connections = PostgresConnections(settings)
    await connections.open()
    yield connections
    await connections.close()


async def failure_of(dsn: str) -> BackendError:
    """What a query fails with."""
    async with connections_to(dsn, connect_timeout_s=PATIENCE_S) as connections:
        with pytest.raises(BackendError) as caught:
            await connections.run("SELECT 1", [], timeout_s=PATIENCE_S)
    return caught.value


async def test_missing_socket_is_unavailable(tmp_path: Path) -> None:
    """A Unix socket that is not there is named as the reason."""
    failure = await failure_of(f"postgresql://postgres@/shop?host={tmp_path}")

    assert failure.code is ErrorCode.BACKEND_UNAVAILABLE
    assert (
        failure.detail
        == "public.customers: there is no Unix socket at the place that the DSN names"
    )


async def test_refused_connection_is_unavailable() -> None:
    """A port where nothing listens is named as the reason, without user or password."""
    port = free_port()
    failure = await failure_of(f"postgresql://postgres:geheim@127.0.0.1:{port}/shop")

    told = f"public.customers: nothing listens at the address of the DSN (127.0.0.1:{port})"
    assert (failure.code, failure.detail) == (ErrorCode.BACKEND_UNAVAILABLE, told)


async def test_unknown_host_is_unavailable() -> None:
    """A host name that does not resolve is named as the reason."""
    failure = await failure_of("postgresql://postgres@nowhere.invalid/shop")

    told = "public.customers: the host name of the DSN does not resolve (nowhere.invalid)"
    assert (failure.code, failure.detail) == (ErrorCode.BACKEND_UNAVAILABLE, told)


@pytest.mark.parametrize(
    "dsn", ["mysql://db/shop", "postgresql://db:port/shop", "host=db", "postgresql://[::1/shop"]
)
async def test_malformed_dsn_is_unavailable(dsn: str) -> None:
    """A DSN that cannot be read shows how one looks, and not itself: it may hold a password."""
    failure = await failure_of(dsn)

    assert failure.code is ErrorCode.BACKEND_UNAVAILABLE
    assert "the DSN is malformed" in failure.detail


async def test_stranger_at_the_port_is_unavailable() -> None:
    """A server that speaks something else is told apart from one that is down."""

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        failure = await failure_of(f"postgresql://postgres@127.0.0.1:{port}/shop?sslmode=disable")

    assert failure.code is ErrorCode.BACKEND_UNAVAILABLE


async def test_silent_server_ends_at_connect_timeout(silent_port: int) -> None:
    """A server that accepts and never answers is given up at the connect timeout."""
    loop = asyncio.get_running_loop()
    dsn = f"postgresql://postgres@127.0.0.1:{silent_port}/shop"
    async with connections_to(dsn, connect_timeout_s=0.1) as connections:
        start_s = loop.time()

        with pytest.raises(BackendError) as caught:
            await connections.run("SELECT 1", [], timeout_s=5.0)

        assert loop.time() - start_s < 0.1 + GRACE_S
    assert caught.value.code is ErrorCode.BACKEND_UNAVAILABLE
    told = f"public.customers: no connection in time (127.0.0.1:{silent_port})"
    assert caught.value.detail == told


async def test_silent_server_ends_at_the_deadline(silent_port: int) -> None:
    """The timeout of the query holds while it waits for a connection, too."""
    loop = asyncio.get_running_loop()
    dsn = f"postgresql://postgres@127.0.0.1:{silent_port}/shop"
    async with connections_to(dsn) as connections:
        start_s = loop.time()

        with pytest.raises(BackendError) as caught:
            await connections.run("SELECT 1", [], timeout_s=0.1)

        assert loop.time() - start_s < 0.1 + GRACE_S
    assert caught.value.code is ErrorCode.BACKEND_UNAVAILABLE


async def test_cancelled_connect_ends_at_once(silent_port: int) -> None:
    """Cancellation does not wait for a server that does not answer; closing does not, either."""
    dsn = f"postgresql://postgres@127.0.0.1:{silent_port}/shop"
    async with asyncio.timeout(GRACE_S), connections_to(dsn) as connections:
        task = asyncio.ensure_future(connections.run("SELECT 1", [], timeout_s=60.0))
        await asyncio.sleep(0)

        task.cancel()
        results = await asyncio.gather(task, return_exceptions=True)

    assert isinstance(results[0], asyncio.CancelledError)
