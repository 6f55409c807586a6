"""Which lookup queries reached a database, as the server itself wrote it down.

Read from the server's log, which has a statement before it runs: the statistics views lag behind.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from tools.processes.postgres_server import Database, PostgresServer

# One entry is written at once. Keys of these tests are numbers, so commas part them.
_QUERY = r"""LOG:  execute \S+: SELECT k\.ordinal.* FROM "public"\."{table}" .*
.*DETAIL:  Parameters: \$1 = '\{{(.*)\}}'"""


@dataclass(frozen=True, slots=True)
class QueryLog:
    """The lookup queries of one database, since its sessions began to be logged."""

    path: Path
    begin_bytes: int  # where the log stood then

    @classmethod
    def of(cls, server: PostgresServer, database: Database) -> "QueryLog":
        """Log every statement of sessions that begin from now on."""
        database.execute(f"ALTER DATABASE {database.name} SET log_statement = 'all'")
        return cls(server.log, server.log.stat().st_size)

    def sizes(self, table: str) -> list[int]:
        """How many keys each query on the table had, in the order in which they came."""
        with self.path.open() as log:
            log.seek(self.begin_bytes)
            text = log.read()
        return [keys.count(",") + 1 for keys in re.findall(_QUERY.format(table=table), text)]
