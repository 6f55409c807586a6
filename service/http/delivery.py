"""Sends responses within a deadline, so that a caller who never reads costs nothing for long.

Not for WebSockets: whoever upgraded a connection sends on it himself.
"""

import asyncio

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from service.http.reset import reset


class Delivery:
    """Hands finished responses to the kernel, or drops their connections; of one event loop."""

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        # {connection: loop time to be ready at}, the earliest first. One timer looks after all: a
        # timer for each response would take longer than most of them.
        self._due: dict[asyncio.Transport, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    @web.middleware
    async def deliver(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The middleware that sends what the handler returns."""
        response = await handler(request)
        transport = request.transport
        if transport is not None and not response.prepared:
            # With a buffer the transport reports success long before the kernel took the bytes.
            transport.set_write_buffer_limits(high=0)
            self._begin(transport)
            try:
                await response.prepare(request)
                await response.write_eof()
            except ConnectionError:
                pass  # the caller left; aiohttp sees it, too, and ends the connection
            finally:
                self._due.pop(transport, None)
        return response

    def _begin(self, transport: asyncio.Transport) -> None:
        loop = asyncio.get_running_loop()
        self._due[transport] = due_s = loop.time() + self._deadline_s
        if self._timer is None:
            self._timer = loop.call_at(due_s, self._look)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        overdue = [each for each, due_s in self._due.items() if due_s <= loop.time()]
        for transport in overdue:
            del self._due[transport]
            structlog.get_logger().warning("http.caller_does_not_read", code="send_timeout")
            reset(transport)
        earliest_s = next(iter(self._due.values()), None)
        self._timer = None if earliest_s is None else loop.call_at(earliest_s, self._look)
