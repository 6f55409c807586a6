"""Sends responses within a deadline, so that a caller who never reads costs nothing for long.

Not for WebSockets: whoever upgraded a connection sends on it himself.
"""

import asyncio
import socket
import struct

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

_RESET = struct.pack("ii", 1, 0)  # Linux's struct linger: on, without waiting


def delivery(send_deadline_s: float) -> Middleware:
    """The middleware that hands the finished response to the kernel, or drops the connection."""

    @web.middleware
    async def deliver(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        transport = request.transport
        if transport is not None and not response.prepared:
            # With a buffer the transport reports success long before the kernel took the bytes.
            transport.set_write_buffer_limits(high=0)
            try:
                await _send(request, response, send_deadline_s)
            except TimeoutError:
                structlog.get_logger().warning("http.caller_does_not_read", code="send_timeout")
                _drop(transport)
        return response

    return deliver


async def _send(request: web.Request, response: web.StreamResponse, deadline_s: float) -> None:
    try:
        async with asyncio.timeout(deadline_s):
            await response.prepare(request)
            await response.write_eof()
    except ConnectionError:
        return  # the caller left; aiohttp sees it, too, and ends the connection


def _drop(transport: asyncio.Transport) -> None:
    # Without a reset the kernel would go on offering what it has already taken.
    connection = transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    transport.abort()
