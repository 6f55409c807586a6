"""A ready response says byte for byte what aiohttp's own would."""

import asyncio
from dataclasses import replace
from email.utils import formatdate, parsedate_to_datetime

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from service.http.replies.ready_response import json_response
from tests.service.http.raw_http import connected, exchanged
from tests.service.http.serving import PATIENCE_S, Served, Setting, served

ROWS = b"GET /v1/dimensions/customers/rows/"
CLOSE = b"Connection: close\r\n"


async def asked(service: Served, line: bytes, *, times: int) -> list[bytes]:
    """The answers to the same request over one connection, one after the other."""
    answers = []
    async with connected(service) as (reader, writer), asyncio.timeout(PATIENCE_S):
        for _ in range(times):
            writer.write(line + b"\r\nHost: localhost\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            length = head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0]
            answers.append(head + await reader.readexactly(int(length)))
    return answers


def undated(answer: bytes) -> bytes:
    """Without what the time of day says."""
    before, _, after = answer.partition(b"\r\nDate: ")
    return before + after.partition(b" GMT")[2]


@pytest.mark.parametrize("key", [b"1", b"2", b"3"])
async def test_it_says_what_aiohttp_would(service: Served, key: bytes) -> None:
    """A row fetched, found and found again: the bytes are those of the library's response."""
    line = ROWS + key + b" HTTP/1.1"
    fetched, found, again = await asked(service, line, times=3)

    by_library = await exchanged(service, line + b"\r\nHost: localhost\r\n" + CLOSE + b"\r\n")

    expected = undated(by_library).replace(CLOSE, b"")
    assert [undated(found), undated(again)] == [expected] * 2
    assert undated(fetched) == expected.replace(b"Outcome: hit", b"Outcome: fetched")


async def test_its_date_is_as_the_library_writes_it(service: Served) -> None:
    """The day of the week, the day, the time of day: in the form of HTTP."""
    (answer,) = await asked(service, ROWS + b"1 HTTP/1.1", times=1)

    date = answer.partition(b"\r\nDate: ")[2].partition(b"\r\n")[0].decode()
    assert formatdate(parsedate_to_datetime(date).timestamp(), usegmt=True) == date


async def test_a_head_has_no_body(service: Served) -> None:
    """A HEAD for a row that was asked for before has the length of its text, and not the text."""
    await asked(service, ROWS + b"1 HTTP/1.1", times=2)

    async with service.tcp.head("/v1/dimensions/customers/rows/1") as response:
        assert await response.read() == b""

    assert response.headers["Content-Length"] == "23"
    assert response.headers["Sidelook-Outcome"] == "hit"


async def test_old_callers_are_disconnected(service: Served) -> None:
    """HTTP/1.0 without keep-alive gets its row, and the end of the connection."""
    answer = await exchanged(service, ROWS + b"1 HTTP/1.0\r\nHost: localhost\r\n\r\n")

    assert answer.startswith(b"HTTP/1.0 200 OK\r\n")
    assert answer.endswith(b'\r\n\r\n{"name":"Ada","tier":1}')


async def test_nothing_is_sent_to_who_left() -> None:
    """Where the connection ends before the answer there is no answer, and no error."""

    async def leave(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.close()
        return json_response(request, b"{}")

    setting = Setting(change_parts=lambda parts: replace(parts, stream=leave))
    async with served(setting) as service:
        line = b"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with capture_logs() as logs:
            answer = await exchanged(service, line)

    assert (answer, logs) == (b"", [])


async def test_pipelined_requests_are_answered_in_turn(service: Served) -> None:
    """Each of several requests that come at once has its own answer."""
    requests = [ROWS + key + b" HTTP/1.1\r\nHost: localhost\r\n" for key in (b"1", b"2", b"1")]

    answers = await exchanged(service, b"\r\n".join(requests) + CLOSE + b"\r\n")

    names = [part.partition(b'"name":')[2][:5] for part in answers.split(b"HTTP/1.1 200 OK")[1:]]
    assert names == [b'"Ada"', b'"Bert', b'"Ada"']
