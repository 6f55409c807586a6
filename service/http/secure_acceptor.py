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


class SecureAcceptor:
    """Hands connections to protocols that `factory` makes."""

    def __init__(
        self,
        factory: Callable[[], asyncio.Protocol],
        context: Callable[[], ssl.SSLContext],
        limits: Limits,
    ) -> None:
        self._factory = factory
        self._context = context
        self._limits = limits

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
                else:
                    shaking.create_task(self._shake_hands(connection, peer[0]))

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
