"""One database, as the server that is reached by a DSN sees the sidecar.

Decides nothing; see `database_findings`. Tables are looked at afterwards, if it answers.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace

import asyncpg

from lookup_core.errors import BackendError
from service.doctor.clock import clock_findings
from service.doctor.database_findings import server_findings
from service.doctor.finding import Matter
from service.doctor.interface import Seen
from service.doctor.postgres_place import PostgresPlace
from service.doctor.postgres_server import PostgresServer, visit_postgres_server
from service.doctor.server_demand import ServerDemand
from service.doctor.store_trouble import trouble


@dataclass(slots=True)
class DatabaseCheck:
    """Asks the server, and remembers what it said for who looks at the tables."""

    place: PostgresPlace
    server: PostgresServer | None = None  # None: not asked yet, or it did not answer

    @property
    def matter(self) -> Matter:
        """The database."""
        return Matter("database", self.place.address)

    async def findings(self) -> AsyncGenerator[Seen, None]:
        """Server, role, pooler, room and clock; or why it cannot be reached."""
        try:
            server = self.server = await self._visited()
        except BackendError as error:
            yield trouble(self.matter, error)
            return
        settings, subject = self.place.settings, self.place.address
        for finding in server_findings(
            self.matter,
            server,
            says_pgbouncer=settings.pgbouncer,
            listens=self.place.is_listened_to,
        ):
            yield finding
        yield ServerDemand(subject, server, self.place.connections)
        for finding in clock_findings(Matter("clock", subject), server.clock):
            yield finding

    async def _visited(self) -> PostgresServer:
        settings = self.place.settings
        try:
            return await visit_postgres_server(settings)
        except BackendError as error:
            # A PgBouncer refuses sessions that start with settings which it does not keep.
            if not isinstance(error.__cause__, asyncpg.ProtocolViolationError):
                raise
            server = await visit_postgres_server(replace(settings, pgbouncer=True))
            return replace(server, is_pooled=True)
