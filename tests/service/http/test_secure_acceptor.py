"""Accepting with TLS goes on, whatever single callers do; see also `test_listeners`."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from service.http.limits import Limits
from service.http.secure_acceptor import MOST_OPEN_FACTOR, MOST_SHAKING, SecureAcceptor
from service.tls.server_certificate import server_certificate
from tests.service.tls.certificates import Authority, authority

PATIENCE_S = 20.0


@pytest.fixture
def signer(tmp_path: Path) -> Authority:
    """Signs what the tests need."""
    return authority(tmp_path)


@asynccontextmanager
async def accepting(
    signer: Authority, listening: socket.socket, *, already: int = 0
) -> AsyncIterator[None]:
    """Connections are accepted at the socket, of which so many are open already."""
    context = server_certificate(signer.issue("localhost")).context
    acceptor = SecureAcceptor(
        asyncio.Protocol, lambda: context, Limits(connections=1), open_connections=lambda: already
    )
    task = asyncio.create_task(acceptor.run(listening))
    async with asyncio.timeout(PATIENCE_S):
        yield
    task.cancel()
    await asyncio.wait([task])


async def until_logged(logs: list[EventDict], event: str) -> EventDict:
    """The first such event, once it is there."""
    async with asyncio.timeout(PATIENCE_S):
        while not (found := [each for each in logs if each["event"] == event]):  # noqa: ASYNC110  nobody is told
            await asyncio.sleep(0.01)
    return found[0]


async def test_failed_handshake_is_told_and_others_go_on(signer: Authority) -> None:
    """The log says who failed and why; the next one is accepted."""
    with socket.create_server(("127.0.0.1", 0)) as listening, capture_logs() as logs:
        port = listening.getsockname()[1]
        async with accepting(signer, listening):
            _, plain = await asyncio.open_connection("127.0.0.1", port)
            plain.write(b"GET / HTTP/1.1\r\n\r\n")
            event = await until_logged(logs, "tls.handshake_failed")
            trust = ssl.create_default_context(cafile=signer.file)
            _, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=trust, server_hostname="localhost"
            )
            for each in (plain, writer):
                each.transport.abort()

    assert (event["code"], event["peer"]) == ("http_request", "127.0.0.1")


async def test_end_breaks_handshakes_off(signer: Authority) -> None:
    """Whoever has not shaken hands by then is let go, and keeps nobody waiting."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        async with accepting(signer, listening):
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            writer.write(b"\x16")
            await asyncio.sleep(0)
        async with asyncio.timeout(PATIENCE_S):
            assert await reader.read() == b""
        writer.close()


async def test_oldest_of_too_many_handshakes_goes(signer: Authority) -> None:
    """Whoever only connects takes a bounded part of the memory, and keeps nobody out."""
    with socket.create_server(("127.0.0.1", 0), backlog=2 * MOST_SHAKING) as listening:
        async with accepting(signer, listening):
            silent = [
                await asyncio.open_connection(*listening.getsockname())
                for _ in range(MOST_SHAKING + 1)
            ]
            assert await silent[0][0].read() == b""
            assert not silent[1][0].at_eof()
    for _, writer in silent:
        writer.close()


async def test_connections_beyond_the_bound_are_closed(signer: Authority) -> None:
    """The bound is a multiple of the requests that may be under way; the log says who came."""
    with socket.create_server(("127.0.0.1", 0)) as listening, capture_logs() as logs:
        async with accepting(signer, listening, already=MOST_OPEN_FACTOR):
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            assert await reader.read() == b""
        writer.close()

    assert logs[0]["event"] == "tls.too_many_connections"


async def test_socket_that_accepts_nothing_is_told(signer: Authority) -> None:
    """Whatever keeps connections from being accepted is in the log, and may pass."""
    with socket.socket() as bound, capture_logs() as logs:
        async with accepting(signer, bound):
            event = await until_logged(logs, "tls.accept_failed")

    assert event["code"] == "OSError"
