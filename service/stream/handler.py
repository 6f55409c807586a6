"""Handler of `/v1/stream`: upgrades requests, and drains all connections at shutdown."""

import asyncio
import socket as socket_module
from collections.abc import Callable
from itertools import count

from aiohttp import WSCloseCode, web

from lookup_core.protocol.answer_budget import FIRST_GUESS_BYTES, AnswerBudget
from lookup_core.protocol.frames import SUBPROTOCOL
from lookup_core.protocol.lookup_scheduler import LearnedCosts
from service.engine.tracer import NullTracer, Tracer
from service.stream.channel_registry import ChannelRegistry
from service.stream.connection import StreamConnection, StreamParts, Timeouts
from service.stream.lookup_queue import LookupQueue

_POLL_S = 0.02
_FIRST_RECORDS = 64  # records of an unknown dimension whose answers fit the budget together


class StreamHandler:
    """Serves streams until the drain; shared by all listeners."""

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
        self.registry = registry
        self._max_message_bytes = max_message_bytes
        self._parts = StreamParts(
            registry,
            LookupQueue(),
            AnswerBudget(answer_bytes),
            LearnedCosts(max(1, min(FIRST_GUESS_BYTES, answer_bytes // _FIRST_RECORDS))),
            agent,
            timeouts or Timeouts(),
            tracer or NullTracer(),
        )
        self._numbers = count(1)
        self._connections: set[StreamConnection] = set()
        self._is_draining = False

    async def run(self) -> None:
        """Run queued lookups, until cancelled."""
        await self._parts.queue.run()

    async def handle(self, request: web.Request) -> web.WebSocketResponse:
        """Serve one connection until it ends."""
        socket = web.WebSocketResponse(
            timeout=self._parts.timeouts.close_s,
            protocols=(SUBPROTOCOL,),
            compress=False,  # on a local socket it would cost time and save nothing
            heartbeat=self._parts.timeouts.heartbeat_s,
            autoping=False,  # the connection limits the rate of pings
            max_msg_size=self._max_message_bytes,
        )
        await socket.prepare(request)
        if socket.ws_protocol != SUBPROTOCOL:
            reason = f"offer the subprotocol {SUBPROTOCOL}"
            await socket.close(code=WSCloseCode.PROTOCOL_ERROR, message=reason.encode())
            return socket
        await self._serve(socket, transport=request.transport)
        return socket

    async def drain(self, timeout_s: float) -> None:
        """Send GOAWAY, wait up to `timeout_s` for records in flight, then close with code 1001."""
        self._is_draining = True
        for connection in self._connections:
            connection.go_away("draining")
        await _wait_until(self._is_quiet, timeout_s)  # clients repeat unanswered lookups elsewhere
        for connection in self._connections:
            connection.end()
        await _wait_until(lambda: not self._connections, self._parts.timeouts.close_s)

    async def _serve(
        self, socket: web.WebSocketResponse, *, transport: asyncio.Transport | None
    ) -> None:
        peer = None if transport is None else transport.get_extra_info("socket")
        is_local = peer is not None and peer.family == socket_module.AF_UNIX
        connection = StreamConnection(socket, next(self._numbers), self._parts, is_local=is_local)
        self._connections.add(connection)
        if self._is_draining:  # it was admitted just before the drain
            connection.end()
        try:
            await connection.serve()
        finally:
            self._connections.discard(connection)
            if transport is not None and socket.close_code == WSCloseCode.ABNORMAL_CLOSURE:
                transport.abort()  # unread bytes would keep the connection open

    def _is_quiet(self) -> bool:
        if any(each.in_flight_records for each in self.registry.statistics()):
            return False
        return all(each.is_idle for each in self._connections)


async def _wait_until(is_so: Callable[[], bool], timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            # Polled, because it happens once: an event would cost every lookup time.
            while not is_so():  # noqa: ASYNC110
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        pass  # the drain continues without it
