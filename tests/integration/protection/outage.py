"""A database server that is gone for a while.

The server is shared by the tests of this folder, so it is back in any case.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import psycopg

from tools.processes.postgres_server import Database, PostgresServer

POLL_INTERVAL_S = 0.005


@asynccontextmanager
async def outage(server: PostgresServer) -> AsyncIterator[None]:
    """It has crashed meanwhile; at the end it lets sessions in again."""
    await asyncio.to_thread(server.crash)
    try:
        yield
    finally:
        await asyncio.to_thread(server.start)


async def restarted(server: PostgresServer, database: Database) -> float:
    """Start it; the moment at which it let a session in, which is before all is done."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(asyncio.to_thread(server.start))
        return await asyncio.to_thread(_moment_of_return_s, database)


def _moment_of_return_s(database: Database) -> float:
    while True:
        with suppress(psycopg.OperationalError):
            database.query("SELECT 1")
            return time.monotonic()
        time.sleep(POLL_INTERVAL_S)
