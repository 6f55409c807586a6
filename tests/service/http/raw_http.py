"""HTTP as bytes, for what no well-behaved client would send.

Not a client: it neither parses nor follows anything.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.service.http.serving import PATIENCE_S, Served


@asynccontextmanager
async def connected(
    service: Served,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to the service's TCP listener."""
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def exchanged(service: Served, sent: bytes) -> bytes:
    """All that the service says to these bytes until it closes the connection."""
    async with connected(service) as (reader, writer), asyncio.timeout(PATIENCE_S):
        writer.write(sent)
        return await reader.read()
