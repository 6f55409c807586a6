"""Connections that are silent, slow or strange end, and the listener goes on."""

import asyncio
import socket
import time
from contextlib import suppress

import pytest

from service.http.limits import Limits
from tests.service.http.raw_http import connected, exchanged
from tests.service.http.serving import PATIENCE_S, Served, Setting, served

QUICK = Setting(limits=Limits(header_deadline_s=1.0))
QUIET_S = 1.0
REQUEST = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"


async def test_silent_connections_are_closed() -> None:
    """Whoever connects and says nothing is let go at the deadline."""
    async with served(QUICK) as service:
        assert await exchanged(service, b"") == b""


@pytest.mark.parametrize("before", [b"", REQUEST + b"\r\n"])
async def test_dripping_headers_are_ended(before: bytes) -> None:
    """Headers that come byte by byte do not extend the deadline, on any request."""
    async with served(QUICK) as service, connected(service) as (reader, writer):
        writer.write(before + REQUEST + b"A: ")
        closed = asyncio.create_task(_until_closed(reader))
        async with asyncio.timeout(PATIENCE_S):
            while not closed.done():
                writer.write(b"a")
                await asyncio.wait([closed], timeout=0.05)

    assert closed.result().count(b"HTTP/1.1 200") == bool(before)


async def _until_closed(reader: asyncio.StreamReader) -> bytes:
    """All that comes; a byte that was on its way when the other side closed makes that a reset."""
    received = b""
    with suppress(ConnectionResetError):
        while chunk := await reader.read(65536):
            received += chunk
    return received


@pytest.mark.parametrize(
    "sent",
    [
        REQUEST + b"Host: localhost\r\n\r\n",
        REQUEST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        REQUEST + b"A: " + b"a" * 10_000 + b"\r\n\r\n",
        REQUEST + b"A: a\r\n" * 200 + b"\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /" + b"a" * 10_000 + b" HTTP/1.1\r\n\r\n",
        b"nonsense\r\n\r\n",
    ],
)  # fmt: skip
async def test_malformed_requests_are_refused(service: Served, sent: bytes) -> None:
    """What is not one clear HTTP/1.1 request is a 400, and the connection is closed."""
    answer = await exchanged(service, sent)

    assert answer.split()[1] == b"400"


async def test_pipelined_requests_are_all_answered(service: Served) -> None:
    """Requests that were sent at once are answered one after the other."""
    last = REQUEST + b"Connection: close\r\n\r\n"

    answer = await exchanged(service, (REQUEST + b"\r\n") * 199 + last)

    assert answer.count(b"HTTP/1.1 200 OK") == 200


async def test_pipeline_is_not_read_without_end(service: Served) -> None:
    """Behind a request that waits some others are taken in; then nothing is read before it ends."""
    service.customers.hold()
    first = b"GET /v1/dimensions/customers/rows/1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    whole = first + (REQUEST + b"A: " + b"a" * 8_000 + b"\r\n\r\n") * 10_000
    with socket.create_connection(("127.0.0.1", service.port)) as caller:
        caller.setblocking(False)  # noqa: FBT003  # the library's own
        taken = await _taken(caller, whole)
        service.customers.release()

    assert taken < len(whole) // 4  # 80 MB: many times what the kernel's buffers take


async def _taken(caller: socket.socket, whole: bytes) -> int:
    """How many of the bytes are taken until none are for a while."""
    sent, quiet_since_s = 0, time.monotonic()
    while sent < len(whole) and time.monotonic() - quiet_since_s < QUIET_S:
        try:
            sent += caller.send(whole[sent : sent + 1_000_000])
            quiet_since_s = time.monotonic()
        except BlockingIOError:
            await asyncio.sleep(0.01)
    return sent


async def test_listener_survives_bad_callers(service: Served) -> None:
    """After any number of broken connections others are served as before."""
    for _ in range(50):
        async with connected(service) as (_, writer):
            writer.write(REQUEST)

    assert (await service.lookup('{"keys": [1]}')).status == 200
