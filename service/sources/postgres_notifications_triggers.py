"""Whether a table has the triggers that tell its changes, by what the catalog says of them.

The question, and what its answer means; who asks is the session that listens.
"""

from collections.abc import Sequence
from typing import Any

from lookup_core.table_origin import TableOrigin
from service.sources.trigger_sql import TriggerNames

# Names and versions; one row of NULLs, if there is the table and nothing else. Any role may read
# it. Enabled means ALWAYS, as the script has it: one that a mere ENABLE brought back tells nothing
# of sessions with `session_replication_role = replica`. A row of the catalog is changed, and so has
# another xmin, when its trigger is disabled or enabled: also where both was done between two looks,
# around a bulk load, say.
TRIGGERS = """
SELECT g.tgname::text AS name, g.oid::text || ' ' || g.xmin::text AS version
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN (pg_catalog.pg_trigger g
           JOIN pg_catalog.pg_proc p ON p.oid = g.tgfoid AND p.proname = $4)
       ON g.tgrelid = c.oid AND g.tgname = ANY ($5) AND g.tgenabled = 'A'
WHERE c.oid = $1 AND n.nspname = $2 AND c.relname = $3
"""


class PostgresNotificationsTriggers:
    """The triggers of one table, from the first look on."""

    def __init__(self, origin: TableOrigin, names: TriggerNames, *, script: str) -> None:
        self._origin = origin
        self._names = names
        self._remedy = f"run what `{script}` prints"
        self._found: dict[str, str] = {}  # at the first look: {trigger: version}

    @property
    def arguments(self) -> Sequence[Any]:
        """Those of TRIGGERS."""
        origin, names = self._origin, self._names
        place = (origin.table_id, origin.schema_name, origin.table_name)
        return (*place, names.function, [*names.triggers.values()])

    def fault(self, rows: Sequence[Any]) -> str | None:
        """Why changes since the first look may not have been told; None: all of them were.

        `rows` is what TRIGGERS brings: names and versions.
        """
        if not rows:
            return "the table is gone, or another one has its name; it is described anew soon"
        found: dict[str, str] = dict(rows)
        missing = [name for name in self._names.triggers.values() if name not in found]
        if missing:
            names = ", ".join(missing)
            return f"no trigger {names}, always enabled, tells its changes; {self._remedy}"
        self._found = self._found or found
        if self._found != found:
            return "its triggers were made anew, or disabled for a while, so that changes are lost"
        return None
