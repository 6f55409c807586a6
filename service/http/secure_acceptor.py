"""Accepts connections with TLS at one socket, each with the context of that moment.

Binds nothing, and knows no route: whom it has shaken hands with goes to the server. Where there is
no TLS, aiohttp's sites do the same, with a context that could not change.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable

import structlog

from service.http.limits import Limits

_PAUSE_S = 1.0  # where no connection can be accepted, as without a free descriptor
# A connection with TLS takes ten times the memory of one without, before anybody has said who they
# are. Whoever shakes hands takes milliseconds: of too many, the one that began first is stuck.
MOST_SHAKING = 256
MOST_OPEN_FACTOR = 4  # connections for each request that may be under way


class SecureAcceptor:
    """Hands connections to protocols that `factory` makes."""

    def __init__(
        self,
        factory: Callable[[], asyncio.Protocol],
        context: Callable[[], ssl.SSLContext],
        limits: Limits,
        *,
        open_connections: Callable[[], int],
    ) -> None:
        self._factory = factory
        self._context = context
        self._limits = limits
        self._open_connections = open_connections
        self._shaking: dict[asyncio.Task[None], None] = {}  # in the order of their beginning

    async def run(self, listening: socket.socket) -> None:
        """Accept until cancelled; then handshakes under way are broken off, and nothing else."""
        listening.settimeout(0)
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as shaking:
            while True:
                try:
                    connection, peer = await loop.sock_accept(listening)
                except OSError as error:
                    structlog.get_logger().error("tls.accept_failed", code=type(error).__name__)
                    await asyncio.sleep(_PAUSE_S)
                    continue
                if self._open_connections() >= MOST_OPEN_FACTOR * self._limits.connections:
                    structlog.get_logger().warning(
                        "tls.too_many_connections", code="overloaded", peer=peer[0]
                    )
                    connection.close()
                    continue
                self._make_room()
                task = shaking.create_task(self._shake_hands(connection, peer[0]))
                self._shaking[task] = None
                task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._shaking.pop(task, None)

    def _make_room(self) -> None:
        if len(self._shaking) >= MOST_SHAKING:
            oldest = next(iter(self._shaking))
            del self._shaking[oldest]
            oldest.cancel()

    async def _shake_hands(self, connection: socket.socket, peer: str) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._factory,
                connection,
                ssl=self._context(),
                ssl_handshake_timeout=self._limits.header_deadline_s,
                ssl_shutdown_timeout=self._limits.linger_s,
            )
        except OSError as error:  # of TLS as of TCP, and the deadline's
            reason = getattr(error, "reason", None) or type(error).__name__
            structlog.get_logger().warning(
                "tls.handshake_failed", code=str(reason).lower(), peer=peer
            )
            connection.close()
