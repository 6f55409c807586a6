"""Delivery of responses within deadlines; a client that reads too slowly is disconnected."""

import asyncio
import socket
import struct
from contextlib import suppress

import structlog
from aiohttp import hdrs, web
from aiohttp.abc import AbstractStreamWriter

from service.http.limits import Limits

FIXED_HEADERS = {
    "Server": "sidelook",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}
_RESET = struct.pack("ii", 1, 0)  # Linux's struct linger: on, without waiting
# TLS buffers every write in full before it pauses the writer.
_TLS_WRITE_BYTES = 64 * 1024


async def deliver(request: web.Request, response: web.StreamResponse, limits: Limits) -> None:
    """Send a response that is not prepared yet; a disconnected client is no error.

    The connection is reset if the client reads less than `rate_bytes` in a `rate_period_s`, or if
    the response is not sent by `send_deadline_s`.
    """
    transport = request.transport
    if transport is None or response.prepared:
        return
    # With a buffer, the transport would report success before the kernel has the bytes.
    transport.set_write_buffer_limits(high=0)
    deadline = _SendDeadline(request.writer, transport, limits)
    try:
        await response.prepare(request)
        if request.secure and request.method != hdrs.METH_HEAD:
            await _write_in_pieces(response)
        else:
            await response.write_eof()
    except ConnectionError:
        pass  # aiohttp closes the connection
    finally:
        deadline.cancel()


def reset(transport: asyncio.Transport) -> None:
    """Reset the connection; a no-op if it is already closed."""
    # A closed socket is a bad descriptor: OSError from asyncio, ValueError from uvloop.
    with suppress(OSError, ValueError):
        # Without a reset the kernel would keep sending the bytes that it already has.
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    transport.abort()


class _SendDeadline:
    """Resets a connection during a response, unless its client reads fast enough."""

    def __init__(
        self, writer: AbstractStreamWriter, transport: asyncio.Transport, limits: Limits
    ) -> None:
        self._writer = writer
        self._transport = transport
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._end_s = self._loop.time() + limits.send_deadline_s
        self._begin_period()

    def cancel(self) -> None:
        """End the supervision."""
        self._timer.cancel()

    def _begin_period(self) -> None:
        self._sent_before = self._sent_bytes
        due_s = min(self._end_s, self._loop.time() + self._limits.rate_period_s)
        self._timer = self._loop.call_at(due_s, self._check)

    def _check(self) -> None:
        is_slow = self._sent_bytes - self._sent_before < self._limits.rate_bytes
        if not is_slow and self._loop.time() < self._end_s:
            self._begin_period()
            return
        structlog.get_logger().warning("http.send_timeout", code="send_timeout")
        reset(self._transport)

    @property
    def _sent_bytes(self) -> int:
        """The bytes that the kernel took; from a fixed but unknown start."""
        return self._writer.output_size - self._transport.get_write_buffer_size()


async def _write_in_pieces(response: web.StreamResponse) -> None:
    """Write a body at the speed of the client."""
    body = response.body if isinstance(response, web.Response) else None
    if isinstance(body, bytes) and len(body) > _TLS_WRITE_BYTES:
        view = memoryview(body)
        for start in range(0, len(body), _TLS_WRITE_BYTES):
            await response.write(view[start : start + _TLS_WRITE_BYTES])
        await web.StreamResponse.write_eof(response)
    else:
        await response.write_eof()
