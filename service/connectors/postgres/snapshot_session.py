"""A session of its own in a transaction that sees one moment, which it takes or is given.

Not of the pool of lookups: those are short, and must never wait for a load. What is asked in it is
the business of enumerator and readers.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import asyncpg

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.postgres.connections import Records, close_session
from service.connectors.postgres.errors import mapped_errors
from service.connectors.postgres.settings import PostgresSettings

QUERY_TIMEOUT_S = 30.0  # of one page, also while somebody holds a lock on the table
_GRACE_S = 2.0  # the server ends it first
# A wish of the role for short transactions must not end a load; a client that is gone must. Those
# of the names that a server does not know are left out.
_SETTINGS = f"""
SELECT pg_catalog.set_config(s.name, w.value, true)
FROM pg_catalog.pg_settings s JOIN (VALUES
    ('statement_timeout', '{QUERY_TIMEOUT_S * 1000:.0f}'), ('transaction_timeout', '0'),
    ('idle_in_transaction_session_timeout', '0'), ('client_connection_check_interval', '1000'),
    ('tcp_keepalives_idle', '30'), ('tcp_keepalives_interval', '10'), ('tcp_keepalives_count', '3'),
    ('jit', 'off'), ('row_security', 'off'), ('max_parallel_workers_per_gather', '0')
) AS w (name, value) ON w.name = s.name
"""  # noqa: S608  all of it is written here
_NO_SUCH_SNAPSHOT = {"22023", "42704", "55000"}  # as PostgreSQL has it in one version or another


class PostgresSnapshotSession:
    """One connection and one transaction, which end with each other."""

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None

    @property
    def is_open(self) -> bool:
        """Whether it was opened, however it is now."""
        return self._connection is not None

    async def open(self, snapshot_id: str | None) -> None:
        """Connect and begin; raises BackendError within the connect timeout.

        It sees what the snapshot of this id shows, None: what it is first asked for. A snapshot
        that is gone will not come back: `backend_rejected`.
        """
        try:
            with mapped_errors(self._settings.table):
                async with asyncio.timeout(self._settings.connect_timeout_s):
                    self._connection = await self._connected()
                    await self._begin(self._connection, snapshot_id)
        except BaseException:
            self._terminate()
            raise

    async def fetch(self, query: str, arguments: Sequence[Any] = ()) -> Records:
        """The rows of a query; raises BackendError in time, and then nothing works any more.

        Cancellation leaves the session of no use either; it waits for nothing.
        """
        assert self._connection is not None, "open comes first"
        try:
            with mapped_errors(self._settings.table):
                async with asyncio.timeout(QUERY_TIMEOUT_S + _GRACE_S):
                    records: Records = await self._connection.fetch(query, *arguments)
        except BaseException:
            self._terminate()
            raise
        return records

    async def close(self) -> None:
        """Say goodbye; a server that does not answer is left without. Never raises."""
        if self._connection is None or self._connection.is_closed():
            return
        await close_session(self._connection)

    async def _connected(self) -> "asyncpg.Connection[asyncpg.Record]":
        settings = self._settings
        return await asyncpg.connect(
            settings.current_dsn(),
            timeout=settings.connect_timeout_s,
            server_settings={"application_name": "sidelook load"},
            statement_cache_size=settings.statement_cache_size,
        )

    async def _begin(
        self, connection: "asyncpg.Connection[asyncpg.Record]", snapshot_id: str | None
    ) -> None:
        await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        if snapshot_id is not None:
            try:
                quoted_id = snapshot_id.replace("'", "''")
                await connection.execute(f"SET TRANSACTION SNAPSHOT '{quoted_id}'")
            except asyncpg.PostgresError as error:
                if error.sqlstate not in _NO_SUCH_SNAPSHOT:
                    raise
                detail = f"{self._settings.table}: the session that kept the snapshot is gone"
                raise BackendError(ErrorCode.BACKEND_REJECTED, detail) from error
        await connection.execute(_SETTINGS)

    def _terminate(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
