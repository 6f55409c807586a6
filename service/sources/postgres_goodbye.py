"""Closing a connection to PostgreSQL that only reads or listens, whatever the server does.

Not for those of the pool, which has an end of its own.
"""

import asyncio

import asyncpg

_CLOSE_TIMEOUT_S = 0.9


async def say_goodbye(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Close it within a second; a server that does not answer is left without. Never raises.

    Cancellation leaves no connection either.
    """
    try:
        async with asyncio.timeout(_CLOSE_TIMEOUT_S):
            await connection.close()
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        pass  # it is gone, and nothing is lost: nothing was written
    finally:
        connection.terminate()
