"""What the server says of the sidecar's sessions, looked at again and again beside a test.

Looks, and keeps the worst; a server that is down has no sessions.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import psycopg

from tools.processes.postgres_server import Database

PAUSE_S = 0.02
_SESSIONS = """SELECT count(*), count(*) FILTER (WHERE state ^@ 'idle in transaction')
    FROM pg_stat_activity
    WHERE application_name = 'sidelook' AND datname = current_database()"""


@dataclass(slots=True)
class SessionWatch:
    """The sessions of the sidecar in one database."""

    database: Database
    looks: int = 0
    most: int = 0  # at the same time
    most_in_transaction: int = 0  # idle, and with a transaction open

    def sessions(self) -> int:
        """How many there are now."""
        (now, in_transaction) = self.database.query(_SESSIONS)[0]
        self.looks += 1
        self.most = max(self.most, now)
        self.most_in_transaction = max(self.most_in_transaction, in_transaction)
        return int(now)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Look meanwhile."""
        task = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _watch(self) -> None:
        while True:
            with suppress(psycopg.OperationalError):  # it is down, or was while it answered
                await asyncio.to_thread(self.sessions)
            await asyncio.sleep(PAUSE_S)
