"""The route `/v1/stream`: upgrades a request and serves the connection; knows all that are open.

What a connection does stands in `connection`.
"""

import asyncio
from itertools import count

from aiohttp import WSCloseCode, web

from lookup_core.frames import SUBPROTOCOL
from lookup_core.server_channel import ChannelStatistics
from service.stream.channel_registry import ChannelRegistry
from service.stream.connection import StreamConnection

HEARTBEAT_S = 15.0
_DRAIN_POLL_S = 0.02


class StreamHandler:
    """Serves streams until the drain; one for all listeners."""

    def __init__(self, registry: ChannelRegistry, *, agent: str, max_message_bytes: int) -> None:
        self._registry = registry
        self._agent = agent
        self._max_message_bytes = max_message_bytes
        self._numbers = count(1)
        self._connections: set[StreamConnection] = set()

    async def handle(self, request: web.Request) -> web.WebSocketResponse:
        """Serve one connection to its end."""
        socket = web.WebSocketResponse(
            protocols=(SUBPROTOCOL,),
            compress=False,  # answers are columns on a local socket: it would only cost time
            heartbeat=HEARTBEAT_S,
            max_msg_size=self._max_message_bytes,
        )
        await socket.prepare(request)
        if socket.ws_protocol != SUBPROTOCOL:
            reason = f"offer the subprotocol {SUBPROTOCOL}"
            await socket.close(code=WSCloseCode.PROTOCOL_ERROR, message=reason.encode())
            return socket
        connection = StreamConnection(
            socket, next(self._numbers), registry=self._registry, agent=self._agent
        )
        self._connections.add(connection)
        try:
            await connection.serve()
        finally:
            self._connections.discard(connection)
        return socket

    def statistics(self) -> list[ChannelStatistics]:
        """All open channels."""
        return self._registry.statistics()

    async def drain(self, timeout_s: float) -> None:
        """Send GOAWAY, wait for what is in flight, then close all with code 1001."""
        for connection in self._connections:
            connection.go_away("draining")
        try:
            async with asyncio.timeout(timeout_s):
                # Polled once in a life: an event for it would cost every lookup something.
                while any(each.in_flight_records for each in self._registry.statistics()):  # noqa: ASYNC110
                    await asyncio.sleep(_DRAIN_POLL_S)
        except TimeoutError:
            pass  # the clients replay what was not answered
        for connection in list(self._connections):
            await connection.close()
