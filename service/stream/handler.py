"""Handler of `/v1/stream`: upgrades requests, runs lookups in turns, and drains all connections."""

import asyncio
import socket as socket_module
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count

from aiohttp import WSCloseCode, web

from lookup_core.protocol.channel_registry import ChannelRegistry, EndedStream
from lookup_core.protocol.credit_ledger import CreditLedger
from lookup_core.protocol.frames import SUBPROTOCOL
from lookup_core.record_costs import FIRST_GUESS_BYTES
from service.engine.dimension import Dimension
from service.engine.pause import pause
from service.engine.tracer import NullTracer, Tracer
from service.stream.connection import StreamConnection, StreamParts, Timeouts

_POLL_S = 0.02
_FIRST_RECORDS = 64  # records of an unknown dimension whose answers fit the budget together


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLimits:
    """Limits of all streams together, and of one message."""

    max_channels: int
    credit_bytes: int
    answer_bytes: int
    max_message_bytes: int


class StreamHandler:
    """Serves streams until the drain; shared by all listeners."""

    def __init__(
        self,
        dimensions: Mapping[str, Dimension],
        limits: StreamLimits,
        *,
        agent: str,
        timeouts: Timeouts | None = None,
        tracer: Tracer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        ledger = CreditLedger[int](limits.credit_bytes, max_channels=limits.max_channels)
        guess_bytes = max(1, min(FIRST_GUESS_BYTES, limits.answer_bytes // _FIRST_RECORDS))
        self.registry = ChannelRegistry(
            ledger, answer_bytes=limits.answer_bytes, guess_bytes=guess_bytes
        )
        self._max_message_bytes = limits.max_message_bytes
        self._parts = StreamParts(
            dimensions=dimensions,
            registry=self.registry,
            agent=agent,
            timeouts=timeouts or Timeouts(),
            tracer=tracer or NullTracer(),
            clock=clock,
        )
        self._numbers = count(1)
        self._is_draining = False

    def watermarks_ms(self) -> dict[str, int]:
        """The event time that the streams of each dimension have reached, if any."""
        return self.registry.watermarks_ms(self._parts.clock())

    def ended_streams(self) -> list[EndedStream]:
        """The streams without an open channel that ended within the last minute."""
        return self.registry.ended_streams(self._parts.clock())

    async def run(self) -> None:
        """Submit queued lookups in turns, and time out overdue ones, until cancelled.

        Between two parts the event loop serves frames, queries and other requests.
        """
        parts, turns = self._parts, self.registry.turns
        while True:
            for lookup in turns.pop_overdue(parts.clock()):
                parts.connections[lookup.channel.connection].time_out(lookup)
            submit = turns.next_part()
            if submit is not None:
                parts.connections[submit.part.lookup.channel.connection].carry_out((submit,))
                await asyncio.sleep(0)
                continue
            due_at = turns.deadlines.earliest()
            await pause(parts.turns_are_due, None if due_at is None else due_at - parts.clock())
            parts.turns_are_due.clear()

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
        socket.headers["Server"] = "sidelook"  # not aiohttp's version
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
        connections = self._parts.connections
        for connection in connections.values():
            connection.go_away("draining")
        await _wait_until(self._is_quiet, timeout_s)  # clients repeat unanswered lookups elsewhere
        for connection in connections.values():
            connection.end()
        await _wait_until(lambda: not connections, self._parts.timeouts.close_s)

    async def _serve(
        self, socket: web.WebSocketResponse, *, transport: asyncio.Transport | None
    ) -> None:
        peer = None if transport is None else transport.get_extra_info("socket")
        is_local = peer is not None and peer.family == socket_module.AF_UNIX
        number = next(self._numbers)
        connection = StreamConnection(socket, number, self._parts, is_local=is_local)
        self._parts.connections[number] = connection
        if self._is_draining:  # it was admitted just before the drain
            connection.end()
        try:
            await connection.serve()
        finally:
            del self._parts.connections[number]
            if transport is not None and socket.close_code == WSCloseCode.ABNORMAL_CLOSURE:
                transport.abort()  # unread bytes would keep the connection open

    def _is_quiet(self) -> bool:
        if any(each.in_flight_records for each in self.registry.statistics()):
            return False
        return all(each.is_idle for each in self._parts.connections.values())


async def _wait_until(is_so: Callable[[], bool], timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            # Polled, because it happens once: an event would cost every lookup time.
            while not is_so():  # noqa: ASYNC110
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        pass  # the drain continues without it
