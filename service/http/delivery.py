"""Delivery of responses within deadlines; a client that reads too slowly is disconnected."""

import asyncio
import socket
import struct
import time
from contextlib import suppress
from dataclasses import dataclass, field

import structlog
from aiohttp import hdrs, web
from multidict import istr

from service.http.limits import RequestLimits

FIXED_HEADERS = {
    hdrs.SERVER: "sidelook",
    hdrs.CACHE_CONTROL: "no-store",
    istr("X-Content-Type-Options"): "nosniff",  # several times faster to set than a str
}
_RESET = struct.pack("ii", 1, 0)  # Linux's struct linger: on, without waiting
# TLS buffers every write in full before it pauses the writer.
_TLS_WRITE_BYTES = 64 * 1024


@dataclass(slots=True, eq=False)
class _Sending:
    """A response that is being sent, as of its last check."""

    request: web.Request
    transport: asyncio.Transport
    begun_s: float
    checked_s: float
    sent_bytes: int = 0


@dataclass(slots=True, eq=False)
class ResponseDelivery:
    """Sends the responses of one application, within deadlines.

    A connection is reset if its client reads less than `rate_bytes` in a `rate_period_s`, or if
    the response is not sent by `send_deadline_s`; both are checked up to a tenth later.
    """

    limits: RequestLimits
    # One timer checks all of them: a timer per response would cost more than most responses.
    _sending: set[_Sending] = field(default_factory=set)
    _timer: asyncio.TimerHandle | None = None

    async def send(self, request: web.Request, response: web.StreamResponse) -> None:
        """Send a response that is not prepared yet; a disconnected client is no error."""
        transport = request.transport
        if transport is None or response.prepared:
            return
        response.headers.update(FIXED_HEADERS)
        # With a buffer, the transport would report success before the kernel has the bytes.
        transport.set_write_buffer_limits(high=0)
        now_s = time.monotonic()
        sending = _Sending(request, transport, now_s, now_s)
        self._sending.add(sending)
        if self._timer is None:
            self._check_later()
        try:
            await response.prepare(request)
            await _write_body(request, response)
        except ConnectionError:
            pass  # aiohttp closes the connection
        finally:
            self._sending.discard(sending)

    def _check_later(self) -> None:
        period_s = min(self.limits.rate_period_s, self.limits.send_deadline_s) / 10
        self._timer = asyncio.get_running_loop().call_later(period_s, self._check)

    def _check(self) -> None:
        now_s = time.monotonic()
        for sending in [*self._sending]:
            if self._is_slow(sending, now_s):
                self._sending.discard(sending)
                structlog.get_logger().warning("http.send_timeout", code="send_timeout")
                reset(sending.transport)
        self._timer = None
        if self._sending:
            self._check_later()

    def _is_slow(self, sending: _Sending, now_s: float) -> bool:
        if now_s >= sending.begun_s + self.limits.send_deadline_s:
            return True
        if now_s < sending.checked_s + self.limits.rate_period_s:
            return False
        # The bytes that the kernel took.
        sent_bytes = sending.request.writer.output_size - sending.transport.get_write_buffer_size()
        is_slow = sent_bytes - sending.sent_bytes < self.limits.rate_bytes
        sending.sent_bytes, sending.checked_s = sent_bytes, now_s
        return is_slow


def reset(transport: asyncio.Transport) -> None:
    """Reset the connection; a no-op if it is already closed."""
    # A closed socket is a bad descriptor: OSError from asyncio, ValueError from uvloop.
    with suppress(OSError, ValueError):
        # Without a reset the kernel would keep sending the bytes that it already has.
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    transport.abort()


async def _write_body(request: web.Request, response: web.StreamResponse) -> None:
    body = response.body if isinstance(response, web.Response) else None
    if (
        isinstance(body, bytes)
        and len(body) > _TLS_WRITE_BYTES
        and request.secure
        and request.method != hdrs.METH_HEAD
    ):
        view = memoryview(body)
        for start in range(0, len(body), _TLS_WRITE_BYTES):
            await response.write(view[start : start + _TLS_WRITE_BYTES])
        await web.StreamResponse.write_eof(response)
    else:
        await response.write_eof()
