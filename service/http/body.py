"""Reads a request's body within its bounds of size, time and encoding.

Not what the body means: see `json_body` and `arrow`.
"""

import asyncio

from aiohttp import web

from service.http.body_room import BodyRoom
from service.http.limits import Limits

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


async def body(request: web.Request, limits: Limits, room: BodyRoom) -> bytes:
    """All bytes of the body, which hold room until they are read.

    Raises 415 for a compressed one, 413 for one that is or turns out too large, and 408 for one
    that is not whole within the deadline, be it slow or broken off; Overloaded without room for it.
    """
    _check_headers(request, limits)
    if request.headers.get("Expect"):
        await _invite(request)
    if request.content.is_eof():  # it is here, as small ones are as a rule: nothing to wait for
        return await _read(request, limits, room)
    try:
        async with asyncio.timeout(limits.body_deadline_s):
            return await _read(request, limits, room)
    except TimeoutError as error:
        raise web.HTTPRequestTimeout(
            text=f"the body was not whole within {limits.body_deadline_s:g} s"
        ) from error


async def wait_for_body(request: web.Request) -> None:
    """Every route's `expect_handler`: nobody is invited before token and size were looked at."""


async def _read(request: web.Request, limits: Limits, room: BodyRoom) -> bytes:
    content = bytearray()
    try:
        while chunk := await request.content.readany():
            room.take(len(chunk), held_bytes=len(content))
            content += chunk
            if len(content) > limits.request_bytes:
                raise _too_large(limits)
        return bytes(content)
    finally:
        room.give_back(len(content))


def _check_headers(request: web.Request, limits: Limits) -> None:
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding.lower() != "identity":
        raise web.HTTPUnsupportedMediaType(text="compressed bodies are refused")
    if (request.content_length or 0) > limits.request_bytes:
        raise _too_large(limits)


async def _invite(request: web.Request) -> None:
    if request.headers["Expect"].lower() != "100-continue":
        raise web.HTTPExpectationFailed(text="only 100-continue can be expected")
    await request.writer.write(_CONTINUE)
    request.writer.output_size = 0  # the response itself has not begun


def _too_large(limits: Limits) -> web.HTTPRequestEntityTooLarge:
    limit = limits.request_bytes
    return web.HTTPRequestEntityTooLarge(limit, text=f"a body may have {limit} bytes")
