"""Table version: detects changes of rows that neither triggers nor a changelog report."""

from collections.abc import Sequence
from typing import Any

from lookup_core.dimension_schema import TableOrigin
from service.connectors.postgres.row_meaning import MEANING
from service.connectors.postgres.triggers import TRUNCATE, TriggerNames

# The version of the table, and a row for each trigger with its version; without triggers, one row.
# No row if the table is gone. Any role may read it.
#
# ALTER TABLE changes rows without a report: it writes another file, or changes their meaning.
# Attached and detached partitions change rows, too; so does TRUNCATE of one, which gets another
# file. VACUUM FULL and CLUSTER also write another file: rows are read again once.
#
# `place` is a table or a partition without the trigger. 'A' is ENABLE ALWAYS, as in the script:
# after a plain ENABLE, sessions with `session_replication_role = replica` skip the trigger. DISABLE
# and ENABLE change its xmin, also when both happen between two checks, as around a bulk load.
#
# Unreported changes are of the last transaction of the snapshot, or of earlier ones.
TABLE_VERSION = f"""
WITH RECURSIVE {MEANING.format(root="$1")}, part AS (
    SELECT c.oid, c.relkind, c.relfilenode, c.relreplident, '0' AS attached, true AS is_root
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = $1::oid AND n.nspname = $2 AND c.relname = $3
    UNION ALL
    SELECT c.oid, c.relkind, c.relfilenode, c.relreplident, i.xmin::text, false
    FROM part
    JOIN pg_catalog.pg_inherits i ON part.relkind = 'p' AND i.inhparent = part.oid
    JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
)
SELECT w.name, pg_catalog.min(part.oid::regclass::text)
               FILTER (WHERE w.name IS NOT NULL AND g.oid IS NULL) AS place,
       pg_catalog.md5(pg_catalog.string_agg(pg_catalog.concat_ws(
           ' ', part.oid, part.relfilenode, part.relreplident, part.attached, g.oid, g.xmin,
           CASE WHEN part.is_root THEN meaning.digest END
       ), ',' ORDER BY part.oid)) AS version,
       pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::bigint - 1
       AS last_transaction_id
FROM part CROSS JOIN meaning
LEFT JOIN pg_catalog.unnest($5::text[]) AS w (name) ON part.is_root OR w.name <> $6
LEFT JOIN (pg_catalog.pg_trigger g
           JOIN pg_catalog.pg_proc p ON p.oid = g.tgfoid AND p.proname = $4)
       ON g.tgrelid = part.oid AND g.tgname = w.name AND g.tgenabled = 'A'
GROUP BY w.name
"""  # noqa: S608  constant


def version_arguments(origin: TableOrigin, names: TriggerNames | None = None) -> Sequence[Any]:
    """The arguments of TABLE_VERSION for a table, perhaps with triggers."""
    place = (origin.table_id, origin.schema_name, origin.table_name)
    if names is None:
        return (*place, "", [], "")
    return (*place, names.function, [*names.triggers.values()], names.triggers[TRUNCATE])


class TriggerCheck:
    """Detects missing and changed triggers of one table, from its first check on."""

    def __init__(self, origin: TableOrigin, names: TriggerNames, *, script: str) -> None:
        self._origin = origin
        self._names = names
        script = f"{script} --partitioned" if origin.is_partitioned else script
        self._remedy = f"run the output of `{script}`"
        self._found: dict[str, str] = {}  # at the first check: {trigger: version}

    @property
    def arguments(self) -> Sequence[Any]:
        """The arguments of TABLE_VERSION."""
        return version_arguments(self._origin, self._names)

    def fault(self, rows: Sequence[Any]) -> str | None:
        """Why changes may be lost since the first check, by rows of TABLE_VERSION; None: none."""
        if not rows:
            return "the table was dropped or replaced; its schema will be read again"
        places = {name: place for name, place, *_ in rows if place is not None}
        missing = [name for name in self._names.triggers.values() if name in places]
        if missing:
            names = ", ".join(missing)
            on = f" on {places[missing[0]]}" if self._origin.is_partitioned else ""
            return f"triggers missing or not ENABLE ALWAYS{on}: {names}; {self._remedy}"
        found = {name: version for name, _, version, _ in rows}
        self._found = self._found or found
        if self._found == found:
            return None
        altered = "ALTER TABLE, ALTER TYPE, TRUNCATE or VACUUM FULL ran"
        if self._origin.is_partitioned:
            return f"partitions were attached or detached, {altered}, or triggers changed"
        return f"triggers were recreated or disabled for a time, or {altered}; rows are read again"
