"""Connections of the listeners: strange or slow clients, and TLS handshakes."""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from service.http.limits import RequestLimits
from service.http.sockets import (
    MAX_HANDSHAKES,
    MAX_OPEN_FACTOR,
    SecureAcceptor,
    connections,
)
from service.tls.server_certificate import server_certificate
from tests.service.engine.running import until
from tests.service.http.serving import (
    ONE,
    PATIENCE_S,
    Served,
    Setting,
    connected,
    exchanged,
    served,
)
from tests.service.tls.certificates import Authority, authority

QUICK = Setting(limits=RequestLimits(header_deadline_s=0.2))
REFUSALS = (ConnectionError, ssl.SSLError)
TOO_LONG = "its first line, a header or a chunk's size has over 8190 bytes"
REQUEST = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"


# Strange and slow clients


async def test_silent_connection_is_closed() -> None:
    """A connection without a request is closed at the header deadline."""
    async with served(QUICK) as service:
        assert await exchanged(service, b"") == b""


@pytest.mark.parametrize("before", [b"", REQUEST + b"\r\n"])
async def test_dripping_headers_are_ended(before: bytes) -> None:
    """Headers that come byte by byte do not extend the deadline, on any request."""
    async with served(QUICK) as service, connected(service) as (reader, writer):
        writer.write(before + REQUEST + b"A: ")
        closed = asyncio.create_task(_read_to_the_end(reader))
        while not closed.done():
            writer.write(b"a")
            await asyncio.wait([closed], timeout=0.02)

    assert closed.result().count(b"HTTP/1.1 200") == bool(before)


async def _read_to_the_end(reader: asyncio.StreamReader) -> bytes:
    received = b""
    with suppress(ConnectionResetError):  # a byte was on its way when the service closed
        while chunk := await reader.read(65536):
            received += chunk
    return received


@pytest.mark.parametrize(
    ("sent", "fault"),
    [
        (REQUEST + b"Host: localhost\r\n\r\n", "Duplicate 'Host' header found."),
        (
            REQUEST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "Transfer-Encoding can't be present with Content-Length",
        ),
        (REQUEST + b"A: " + b"a" * 10_000 + b"\r\n\r\n", TOO_LONG),
        (b"GET /" + b"a" * 10_000 + b" HTTP/1.1\r\n\r\n", TOO_LONG),
        (REQUEST + b"A: a\r\n" * 200 + b"\r\n", "it has more than 128 headers"),
        (REQUEST + b"A: s3cret\x01\r\n\r\n", "Invalid header value char"),
        (REQUEST + b"Sec-WebSocket-Key1: s3cret\r\n\r\n", "a header has a character that is not"),
        (b"GET s3cret HTTP/1.1\r\nHost: localhost\r\n\r\n", "the request target is no URL"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "Received HTTPS traffic on an HTTP port"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/2 is not supported; set HTTP/1.1"),
        (b"nonsense\r\n\r\n", "Invalid method encountered"),
    ],
)  # fmt: skip
async def test_malformed_request_is_refused(service: Served, sent: bytes, fault: str) -> None:
    """Bytes that are not one clear HTTP/1.1 request are a problem; the next client is served.

    The problem names a limit, and quotes nothing of the request.
    """
    head, _, body = (await exchanged(service, sent)).partition(b"\r\n\r\n")

    assert head.split()[1] == b"400"
    assert b"Content-Type: application/problem+json" in head
    detail = json.loads(body)["detail"]
    assert detail.startswith(f"this is not a valid HTTP/1.1 request: {fault}")
    assert not any(each in detail for each in ("s3cret", "b'", "aaa"))
    assert (await service.get("/livez", over="tcp")).status == 200


async def test_late_broken_chunk_ends_its_request() -> None:
    """A broken chunk that arrives after its request ends the body at its deadline, as a 408."""
    chunked = f"POST {ONE}/lookup HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
    limits = RequestLimits(body_deadline_s=0.1, linger_s=0.1)
    async with served(Setting(limits=limits)) as service, connected(service) as (reader, writer):
        writer.write(chunked.encode() + b"Expect: 100-continue\r\n\r\n")
        await reader.readuntil(b"100 Continue\r\n\r\n")
        writer.write(b"5\r\n[1, 2\r\nZZ\r\n")
        answer = await reader.read()

    assert answer.startswith(b"HTTP/1.1 408 ")


async def test_malformed_request_is_logged_once(
    service: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has one warning, which quotes nothing of the request, and no traceback."""
    with capture_logs() as logs:
        await exchanged(service, REQUEST + b"Host: a\r\nAuthorization: secret\r\n\r\n")

    assert caplog.records == []
    assert logs == [
        {
            "event": "http.malformed_request",
            "log_level": "warning",
            "code": "bad_http",
            "peer": "127.0.0.1",
            "reason": "BadHttpMessage",
        }
    ]


async def test_pipeline_is_not_read_without_end(service: Served) -> None:
    """Behind a request that waits, only so much of the next ones is read."""
    service.customers.hold()
    first = f"GET {ONE}/rows/1 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    whole = first + (REQUEST + b"A: " + b"a" * 8_000 + b"\r\n\r\n") * 10_000
    with socket.create_connection(("127.0.0.1", service.port)) as caller:
        caller.setblocking(False)  # noqa: FBT003  the library's own
        sent = idle = 0
        while idle < 20 and sent < len(whole):
            try:
                sent += caller.send(whole[sent : sent + 1_000_000])
                idle = 0
            except BlockingIOError:
                idle += 1
                await asyncio.sleep(0.01)

    assert sent < len(whole) // 4  # 80 MB: many times what the kernel's buffers take


# TLS handshakes


@asynccontextmanager
async def accepting(
    signer: Authority, *, listening: socket.socket | None = None
) -> AsyncIterator[tuple[str, int]]:
    """Connections are accepted at this address; four of them may be open."""
    context = server_certificate(signer.issue("localhost")).context
    bound = listening or socket.create_server(("127.0.0.1", 0), backlog=2 * MAX_HANDSHAKES)
    limits = RequestLimits(connections=1)
    async with connections(web.Application(), limits, shutdown_timeout_s=0.0) as opened:
        with bound:
            task = asyncio.create_task(SecureAcceptor(opened, lambda: context).run(bound))
            async with asyncio.timeout(2 * PATIENCE_S):
                yield bound.getsockname()
            task.cancel()
            await asyncio.wait([task])


async def secure_connection(
    signer: Authority, address: tuple[str, int]
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection after its handshake; raises OSError if it is closed before."""
    trust = ssl.create_default_context(cafile=signer.file)
    return await asyncio.open_connection(*address, ssl=trust, server_hostname="localhost")


@pytest.fixture
def signer(tmp_path: Path) -> Authority:
    """Signs certificates."""
    return authority(tmp_path)


async def test_failed_handshake_is_logged(signer: Authority) -> None:
    """The log has the peer and the reason of a failed handshake; the next client is accepted."""
    with capture_logs() as logs:
        async with accepting(signer) as address:
            _, plain = await asyncio.open_connection(*address)
            plain.write(b"GET / HTTP/1.1\r\n\r\n")
            await until(lambda: bool(logs))
            _, writer = await secure_connection(signer, address)
            for each in (plain, writer):
                each.transport.abort()

    found = [logs[0][field] for field in ("event", "code", "peer")]
    assert found == ["tls.handshake_failed", "http_request", "127.0.0.1"]


async def test_end_breaks_handshakes_off(signer: Authority) -> None:
    """When the listener ends, running handshakes are closed."""
    async with accepting(signer) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"\x16")
        await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE_S):
        assert await reader.read() == b""
    writer.close()


async def test_oldest_of_too_many_handshakes_ends(signer: Authority) -> None:
    """Of more than 256 handshakes the oldest is closed."""
    async with accepting(signer) as address:
        silent = [await asyncio.open_connection(*address) for _ in range(MAX_HANDSHAKES + 1)]
        assert await silent[0][0].read() == b""
        assert not silent[1][0].at_eof()
    for _, writer in silent:
        writer.close()


async def test_open_connections_are_bounded(signer: Authority) -> None:
    """Beyond four open connections per admitted request, new ones are closed."""
    async with accepting(signer) as address:
        opened = [await secure_connection(signer, address) for _ in range(MAX_OPEN_FACTOR)]
        with capture_logs() as logs, pytest.raises(REFUSALS):
            await secure_connection(signer, address)
        for _, writer in opened:
            writer.transport.abort()

    assert [line["event"] for line in logs] == ["tls.too_many_connections"]


async def test_socket_that_accepts_nothing_is_logged(signer: Authority) -> None:
    """A failed accept is logged, and the next one follows."""
    with capture_logs() as logs, socket.socket() as unbound:
        async with accepting(signer, listening=unbound):
            await until(lambda: bool(logs))

    assert (logs[0]["event"], logs[0]["code"]) == ("tls.accept_failed", "OSError")
