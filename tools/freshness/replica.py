"""Logical replica of the audited table: a subscriber, whose transaction ids are its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from tools.freshness.table import EMPTY, NAME, versions_in
from tools.processes.postgres_server import Database, running_postgres
from tools.processes.until import until

_PUBLICATION = "replicated"
_SUBSCRIPTION = "replica"


@dataclass(frozen=True, slots=True)
class LogicalReplica:
    """The database of the subscriber, and that of the publisher."""

    database: Database
    origin: Database

    def stop(self) -> None:
        """Apply no changes."""
        self.database.execute(f"ALTER SUBSCRIPTION {_SUBSCRIPTION} DISABLE")

    def resume(self) -> None:
        """Apply all changes since the stop."""
        self.database.execute(f"ALTER SUBSCRIPTION {_SUBSCRIPTION} ENABLE")

    def wait_until_applied(self) -> None:
        """Wait until it has all rows of the publisher, where nothing changes."""
        until(self._has_all_rows)

    def _has_all_rows(self) -> bool:
        return np.array_equal(versions_in(self.database), versions_in(self.origin))


@contextmanager
def logical_replica(origin: Database) -> Iterator[LogicalReplica]:
    """A replica of all rows; the publisher has `wal_level = logical`."""
    origin.execute(f"CREATE PUBLICATION {_PUBLICATION} FOR TABLE {NAME}")
    source = f"host={origin.socket_folder} dbname={origin.name} user=postgres"
    subscribe = f"CREATE SUBSCRIPTION {_SUBSCRIPTION} CONNECTION '{source}'"
    with running_postgres() as server:
        database = server.new_database()
        # By default, its worker starts up to 5 s late: longer than changed keys hold off.
        quickly = "ALTER SYSTEM SET wal_retrieve_retry_interval = '100ms'"
        database.execute(quickly, "SELECT pg_reload_conf()")
        database.execute(EMPTY, f"{subscribe} PUBLICATION {_PUBLICATION}")
        replica = LogicalReplica(database, origin)
        replica.wait_until_applied()
        try:
            yield replica
        finally:
            database.execute(f"DROP SUBSCRIPTION {_SUBSCRIPTION}")
