"""A caller who does not read is cut off, and costs nobody else anything."""

import asyncio
import select
import socket
from dataclasses import replace

from aiohttp import web

from service.http.limits import Limits
from service.http.replies.ready_response import json_response
from tests.service.http.serving import PATIENCE_S, Setting, served

LARGE = b"x" * 50_000_000  # more than any socket buffer takes


async def test_callers_who_do_not_read_are_cut_off() -> None:
    """A response that is not taken within the deadline ends with its connection."""
    setting = Setting(
        limits=Limits(send_deadline_s=0.1),
        change_parts=lambda parts: replace(parts, metrics=lambda: LARGE),
    )
    async with served(setting) as service:
        with socket.create_connection(("127.0.0.1", service.port)) as caller:
            caller.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            is_cut_off = await asyncio.to_thread(_is_closed, caller)

    assert is_cut_off


async def test_callers_who_read_get_it_all() -> None:
    """A large response arrives whole where it is taken."""
    setting = Setting(change_parts=lambda parts: replace(parts, metrics=lambda: LARGE))

    async with served(setting) as service, service.tcp.get("/metrics") as response:
        assert len(await response.read()) == len(LARGE)


async def ready(request: web.Request) -> web.StreamResponse:
    """A large answer in JSON."""
    return json_response(request, LARGE)


async def test_ready_responses_have_the_same_deadline() -> None:
    """An answer in JSON that is not taken ends with its connection, too."""
    setting = Setting(
        limits=Limits(send_deadline_s=0.1),
        change_parts=lambda parts: replace(parts, stream=ready),
    )
    async with served(setting) as service:
        with socket.create_connection(("127.0.0.1", service.port)) as caller:
            caller.sendall(b"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
            is_cut_off = await asyncio.to_thread(_is_closed, caller)

    assert is_cut_off


async def test_ready_responses_arrive_whole() -> None:
    """A large answer in JSON arrives whole where it is taken, and the connection goes on."""
    setting = Setting(change_parts=lambda parts: replace(parts, stream=ready))

    async with served(setting) as service:
        for _ in range(2):
            async with service.tcp.get("/v1/stream") as response:
                assert len(await response.read()) == len(LARGE)


async def test_leaving_in_the_middle_harms_nobody() -> None:
    """A caller who hangs up while it is answered leaves the service as it was."""
    setting = Setting(
        limits=Limits(connections=1),
        change_parts=lambda parts: replace(parts, metrics=lambda: LARGE),
    )
    async with served(setting) as service:
        _, writer = await asyncio.open_unix_connection(str(service.path))
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await writer.drain()
        writer.transport.abort()

        async with service.unix.get("/livez") as response:
            assert response.status == 200


async def test_begun_responses_are_left_alone() -> None:
    """A handler that sends by itself, as streams do, is not interfered with."""

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"by myself")
        return response

    setting = Setting(change_parts=lambda parts: replace(parts, stream=stream))
    async with served(setting) as service, service.unix.get("/v1/stream") as response:
        assert await response.read() == b"by myself"


def _is_closed(caller: socket.socket) -> bool:
    # Without reading: a reset shows as an error, whatever stands in the buffers.
    poll = select.poll()
    poll.register(caller, select.POLLRDHUP)
    return poll.poll(PATIENCE_S * 1000) != []


async def test_each_who_does_not_read_is_cut_off() -> None:
    """A later caller who does not read has a deadline of his own; so has one after that."""
    setting = Setting(
        limits=Limits(send_deadline_s=0.1),
        change_parts=lambda parts: replace(parts, metrics=lambda: LARGE),
    )
    async with served(setting) as service:
        for _ in range(2):
            with (
                socket.create_connection(("127.0.0.1", service.port)) as first,
                socket.create_connection(("127.0.0.1", service.port)) as second,
            ):
                for caller in (first, second):
                    caller.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    async with service.tcp.get("/livez") as response:
                        assert response.status == 200
                closed = [await asyncio.to_thread(_is_closed, each) for each in (first, second)]
                assert closed == [True, True]
