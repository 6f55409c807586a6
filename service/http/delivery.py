"""Delivery of responses within limits; a client that reads too slowly is disconnected."""

import asyncio
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass, field

import structlog
from aiohttp import hdrs, web
from aiohttp.abc import AbstractStreamWriter

from service.http.limits import Limits
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
    """Sends responses, and resets connections that read too slowly; for one event loop."""

    limits: Limits
    # One timer serves all of them: a timer per response would cost more time than most responses.
    _sending: dict[asyncio.Transport, "_Sending"] = field(default_factory=dict)
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
            self._begin(request, transport)
            has_body = request.method != hdrs.METH_HEAD
            if has_body and request.secure and isinstance(response, web.Response):
                await _write_in_pieces(response)
            else:
                await response.write_eof()
        except ConnectionError:
            pass  # aiohttp closes the connection
        finally:
            self._sending.pop(transport, None)

    def _begin(self, request: web.Request, transport: asyncio.Transport) -> None:
        loop = asyncio.get_running_loop()
        sending = _Sending(request.writer, transport, self.limits, begun_s=loop.time())
        self._sending[transport] = sending
        if self._timer is None:
            self._timer = loop.call_at(sending.due_s, self._reset_slow)

    def _reset_slow(self) -> None:
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        due = [each for each, sending in self._sending.items() if sending.due_s <= now_s]
        for transport in due:
            if not self._sending[transport].continues(now_s):
                del self._sending[transport]
                structlog.get_logger().warning("http.send_timeout", code="send_timeout")
                reset(transport)
        next_s = min((sending.due_s for sending in self._sending.values()), default=None)
        self._timer = None if next_s is None else loop.call_at(next_s, self._reset_slow)


class _Sending:
    """One response that the kernel has not taken whole; `due_s` is the time of its next check."""

    def __init__(
        self,
        writer: AbstractStreamWriter,
        transport: asyncio.Transport,
        limits: Limits,
        *,
        begun_s: float,
    ) -> None:
        self._writer = writer
        self._transport = transport
        self._limits = limits
        self._end_s = begun_s + limits.send_deadline_s
        self._taken_bytes = self._all_taken_bytes
        self.due_s = min(self._end_s, begun_s + limits.rate_period_s)

    def continues(self, now_s: float) -> bool:
        """Whether the client read enough since the last check, and the deadline is not reached."""
        taken_bytes = self._all_taken_bytes
        is_slow = taken_bytes - self._taken_bytes < self._limits.rate_bytes
        self._taken_bytes = taken_bytes
        self.due_s = min(self._end_s, now_s + self._limits.rate_period_s)
        return now_s < self._end_s and not is_slow

    @property
    def _all_taken_bytes(self) -> int:
        """The bytes that the kernel took; from a fixed but unknown start."""
        return self._writer.output_size - self._transport.get_write_buffer_size()


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
