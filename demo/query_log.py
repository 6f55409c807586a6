"""How many lookups' queries PostgreSQL executed, counted in PostgreSQL's own log.

The extension `pg_stat_statements` would say the same, but is not part of the embedded server;
`pg_stat_user_tables` counts probes of an index, which are as many as keys.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LINE_PREFIX = "user=%u application=%a "  # for `log_line_prefix`; ends before the message
# One line for each execution. Statements over several lines go on in lines that start with a tab.
EXECUTION = re.compile(r"^user=(?P<user>\S+) application=\S* LOG: +(execute [^:]*|statement): ")
LOOKUP = "WITH ORDINALITY"  # what tells a lookup from a question about the catalog
PLAN = "EXPLAIN"  # how a lookup would be carried out, which is not one


@dataclass(frozen=True, slots=True)
class QueryLog:
    """The part of a server's log from one moment on."""

    path: Path
    start_bytes: int

    def count(self, user: str, tables: Sequence[str]) -> dict[str, int]:
        """Executed lookups of each table by `user` since the start."""
        asked = re.compile(rf"\b(?:FROM|JOIN)\s[^,;(]*?\b({'|'.join(tables)})\b", re.IGNORECASE)
        found = [asked.search(lookup) for lookup in self._lookups(user)]
        counts = Counter(match[1] for match in found if match)
        return {table: counts[table] for table in tables}

    def _lookups(self, user: str) -> list[str]:
        with self.path.open("rb") as log:
            log.seek(self.start_bytes)
            lines = log.read().decode(errors="replace").replace("\n\t", " ").splitlines()
        executions = filter(None, map(EXECUTION.match, lines))
        return [
            execution.string
            for execution in executions
            if execution["user"] == user
            and LOOKUP in execution.string.upper()
            and PLAN not in execution.string.upper()
        ]


def query_log(path: Path) -> QueryLog:
    """The log from now on."""
    return QueryLog(path, path.stat().st_size)
