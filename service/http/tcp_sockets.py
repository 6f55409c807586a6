"""The sockets of a TCP listener: one for each address that its host has.

Only binds; serving them is their owner's business.
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

# Connections not accepted yet; the kernel may allow fewer. With aiohttp's 128 a burst of callers
# is lost, by TCP for a second and by a Unix socket for good, instead of being served or refused.
BACKLOG = 4096


@asynccontextmanager
async def tcp_sockets(host: str, port: int) -> AsyncIterator[list[socket.socket]]:
    """Sockets that listen until the block ends; raises OSError where one cannot be bound."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE, proto=socket.IPPROTO_TCP
    )
    with ExitStack() as stack:
        yield [
            stack.enter_context(socket.create_server(address[:2], family=family, backlog=BACKLOG))
            for family, _, _, _, address in found
        ]
