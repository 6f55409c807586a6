"""The route `/v1/stream`: upgrades a request and serves the connection; knows all that are open.

What a connection does stands in `connection`.
"""

import asyncio
from collections.abc import Callable
from itertools import count

from aiohttp import WSCloseCode, web

from lookup_core.protocol.answer_budget import FIRST_GUESS_BYTES, AnswerBudget
from lookup_core.protocol.frames import SUBPROTOCOL
from lookup_core.protocol.lookup_scheduler import LearnedCosts
from lookup_core.protocol.server_channel import ChannelStatistics
from service.engine.tracer import NullTracer, Tracer
from service.stream.channel_registry import ChannelRegistry
from service.stream.connection import StreamConnection
from service.stream.lookup_queue import LookupQueue
from service.stream.stream_parts import StreamParts, Timeouts

_POLL_S = 0.02
_FIRST_RECORDS = 64  # of a dimension of which nothing is known, that all answers have room for


class StreamHandler:
    """Serves streams until the drain; one for all listeners."""

    def __init__(
        self,
        registry: ChannelRegistry,
        *,
        agent: str,
        max_message_bytes: int,
        answer_bytes: int,
        timeouts: Timeouts | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self._registry = registry
        self._max_message_bytes = max_message_bytes
        self._timeouts = timeouts or Timeouts()
        self._parts = StreamParts(
            registry,
            LookupQueue(),
            AnswerBudget(answer_bytes),
            LearnedCosts(max(1, min(FIRST_GUESS_BYTES, answer_bytes // _FIRST_RECORDS))),
            agent,
            self._timeouts,
            tracer or NullTracer(),
        )
        self._numbers = count(1)
        self._connections: set[StreamConnection] = set()
        self._is_draining = False

    async def run(self) -> None:
        """Carry out lookups that have to wait for their turn, until cancelled."""
        await self._parts.line.run()

    async def handle(self, request: web.Request) -> web.WebSocketResponse:
        """Serve one connection to its end."""
        socket = web.WebSocketResponse(
            timeout=self._timeouts.close_s,
            protocols=(SUBPROTOCOL,),
            compress=False,  # answers are columns on a local socket: it would only cost time
            heartbeat=self._timeouts.heartbeat_s,
            autoping=False,  # pings are counted before they are answered
            max_msg_size=self._max_message_bytes,
        )
        await socket.prepare(request)
        if socket.ws_protocol != SUBPROTOCOL:
            reason = f"offer the subprotocol {SUBPROTOCOL}"
            await socket.close(code=WSCloseCode.PROTOCOL_ERROR, message=reason.encode())
            return socket
        await self._serve(socket, transport=request.transport)
        return socket

    def statistics(self) -> list[ChannelStatistics]:
        """All open channels."""
        return self._registry.statistics()

    def allow_growth(self, is_allowed: bool) -> None:  # noqa: FBT001 -- a switch
        """Whether there may be more channels and more credit than there are."""
        self._registry.allow_growth(is_allowed)

    def watermarks_ms(self) -> dict[str, int]:
        """How far the event time of each dimension's streams is."""
        return self._registry.watermarks.watermarks_ms()

    async def drain(self, timeout_s: float) -> None:
        """Send GOAWAY, wait for what is in flight, then close all with code 1001."""
        self._is_draining = True
        for connection in self._connections:
            connection.go_away("draining")
        await _wait_until(self._is_quiet, timeout_s)  # the clients replay what was not answered
        for connection in self._connections:
            connection.end()
        await _wait_until(lambda: not self._connections, self._timeouts.close_s)

    async def _serve(
        self, socket: web.WebSocketResponse, *, transport: asyncio.Transport | None
    ) -> None:
        connection = StreamConnection(socket, next(self._numbers), self._parts)
        self._connections.add(connection)
        if self._is_draining:  # it was let in just before
            connection.end()
        try:
            await connection.serve()
        finally:
            self._connections.discard(connection)
            if transport is not None and socket.close_code == WSCloseCode.ABNORMAL_CLOSURE:
                transport.abort()  # what its peer does not read would keep it open

    def _is_quiet(self) -> bool:
        if any(each.in_flight_records for each in self._registry.statistics()):
            return False
        return all(each.is_idle for each in self._connections)


async def _wait_until(is_so: Callable[[], bool], timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            # Polled once in a life: an event for it would cost every lookup something.
            while not is_so():  # noqa: ASYNC110
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        pass  # whoever waits goes on without
