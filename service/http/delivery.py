"""Delivery of responses within a deadline; a client that does not read is disconnected."""

import asyncio
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass, field

import structlog
from aiohttp import hdrs, web

from service.http.replies.ready_response import ReadyResponse

_RESET = struct.pack("ii", 1, 0)  # Linux's struct linger: on, without waiting


def reset(transport: asyncio.Transport) -> None:
    """Reset the connection; a no-op if it is already closed."""
    # A closed socket is a bad descriptor: OSError from asyncio, ValueError from uvloop.
    with suppress(OSError, ValueError):
        # Without a reset the kernel would keep sending the bytes that it already has.
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    transport.abort()


# TLS buffers every write in full before it pauses the writer.
_PIECE_BYTES = 64 * 1024


@dataclass(slots=True, eq=False)
class Delivery:
    """Sends responses, and resets connections at their deadline; for one event loop."""

    deadline_s: float
    # {connection: deadline in loop time}, earliest first. One timer serves all of them: a timer
    # per response would cost more time than most responses.
    _due: dict[asyncio.Transport, float] = field(default_factory=dict)
    _timer: asyncio.TimerHandle | None = None

    async def send(self, request: web.Request, response: web.StreamResponse) -> None:
        """Send a response that is not prepared yet; a disconnected client is no error."""
        transport = request.transport
        if transport is None or response.prepared:
            return
        # With a buffer, the transport would report success before the kernel has the bytes.
        transport.set_write_buffer_limits(high=0)
        try:
            await response.prepare(request)
            if isinstance(response, ReadyResponse) and not transport.get_write_buffer_size():
                return  # the kernel has all bytes, as for most responses
            self._begin(transport)
            has_body = request.method != hdrs.METH_HEAD
            if has_body and request.secure and isinstance(response, web.Response):
                await _write_in_pieces(response)
            else:
                await response.write_eof()
        except ConnectionError:
            pass  # aiohttp closes the connection
        finally:
            self._due.pop(transport, None)

    def _begin(self, transport: asyncio.Transport) -> None:
        loop = asyncio.get_running_loop()
        self._due[transport] = due_s = loop.time() + self.deadline_s
        if self._timer is None:
            self._timer = loop.call_at(due_s, self._reset_overdue)

    def _reset_overdue(self) -> None:
        loop = asyncio.get_running_loop()
        overdue = [each for each, due_s in self._due.items() if due_s <= loop.time()]
        for transport in overdue:
            del self._due[transport]
            structlog.get_logger().warning("http.send_timeout", code="send_timeout")
            reset(transport)
        earliest_s = next(iter(self._due.values()), None)
        self._timer = None if earliest_s is None else loop.call_at(earliest_s, self._reset_overdue)


async def _write_in_pieces(response: web.Response) -> None:
    """Write the body in pieces, at the speed of the client."""
    body = response.body
    if not isinstance(body, bytes) or len(body) <= _PIECE_BYTES:
        await response.write_eof()
        return
    view = memoryview(body)
    for start in range(0, len(body), _PIECE_BYTES):
        await response.write(view[start : start + _PIECE_BYTES])
    await web.StreamResponse.write_eof(response)
