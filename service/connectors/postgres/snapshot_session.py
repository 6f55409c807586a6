"""PostgreSQL session with one transaction on one snapshot, exported or imported.

It is not from the pool: lookups are short, and must not wait for a load.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import asyncpg

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.postgres.connections import Records, close_session
from service.connectors.postgres.errors import mapped_errors
from service.connectors.postgres.settings import PostgresSettings

QUERY_TIMEOUT_S = 30.0  # of one page, also while another session locks the table
_GRACE_S = 2.0  # the server's timeout comes first
# The role's timeouts for short transactions must not end a load; a lost client must. Settings that
# a server version lacks are left out.
_SETTINGS = f"""
SELECT pg_catalog.set_config(s.name, w.value, true)
FROM pg_catalog.pg_settings s JOIN (VALUES
    ('statement_timeout', '{QUERY_TIMEOUT_S * 1000:.0f}'), ('transaction_timeout', '0'),
    ('idle_in_transaction_session_timeout', '0'), ('client_connection_check_interval', '1000'),
    ('tcp_keepalives_idle', '30'), ('tcp_keepalives_interval', '10'), ('tcp_keepalives_count', '3'),
    ('jit', 'off'), ('row_security', 'off'), ('max_parallel_workers_per_gather', '0')
) AS w (name, value) ON w.name = s.name
"""  # noqa: S608  constants only
_NO_SUCH_SNAPSHOT = {"22023", "42704", "55000"}  # in different versions of PostgreSQL


class PostgresSnapshotSession:
    """One connection with one read-only transaction, which ends with it."""

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None

    @property
    def is_open(self) -> bool:
        """Whether `open` succeeded; true after a failure or `close`, too."""
        return self._connection is not None

    async def open(self, snapshot_id: str | None) -> None:
        """Connect and begin; None: on the snapshot of the first query.

        Raises BackendError within the connect timeout; `backend_rejected` if the snapshot with this
        id no longer exists.
        """
        settings = self._settings
        try:
            with mapped_errors(settings.table):
                async with asyncio.timeout(settings.connect_timeout_s):
                    self._connection = await asyncpg.connect(
                        settings.current_dsn(),
                        timeout=settings.connect_timeout_s,
                        server_settings={"application_name": "sidelook load"},
                        statement_cache_size=settings.statement_cache_size,
                    )
                    await self._begin(self._connection, snapshot_id)
        except BaseException:
            self._terminate()
            raise

    async def fetch(self, query: str, arguments: Sequence[Any] = ()) -> Records:
        """Run a query; raises BackendError in time.

        After an error or a cancellation, which does not wait, the session is unusable.
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
        """Close the connection, and terminate it without an answer. Never raises."""
        if self._connection is not None and not self._connection.is_closed():
            await close_session(self._connection)

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
                detail = f"{self._settings.table}: the session that exported the snapshot has ended"
                raise BackendError(ErrorCode.BACKEND_REJECTED, detail) from error
        await connection.execute(_SETTINGS)

    def _terminate(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
