"""Table version: detects changes of rows that neither triggers nor a changelog report."""

from collections.abc import Sequence
from typing import Any

from lookup_core.dimension_schema import TableOrigin
from service.connectors.postgres.row_meaning import MEANING
from service.connectors.postgres.triggers import (
    FUNCTION_SETTINGS,
    TRUNCATE_TYPE,
    TableTriggers,
)

# The version of the table, and a row for each trigger with its version; without triggers, one row.
# No row if the table is gone. Any role may read it.
#
# ALTER TABLE changes rows without a report: it writes another file, or changes their meaning.
# Attached and detached partitions change rows, too; so does TRUNCATE of one, which gets another
# file. VACUUM FULL and CLUSTER also write another file: rows are read again once.
#
# Under another name for a moment, changes of the table were not in its changelog. The row type has
# the same name, and another xmin after each change of name or owner, unlike the table only then.
#
# `fault` is why a trigger does not report each change of a table or a partition, as the script's
# would. 'A' is ENABLE ALWAYS: after a plain ENABLE, sessions with `session_replication_role =
# replica` skip the trigger. White space of the function has no effect. DISABLE, ENABLE and another
# function change an xmin, also when both happen between two checks, as around a bulk load.
#
# Unreported changes are of the last transaction of the snapshot, or of earlier ones.
_WITHOUT_SPACE = "pg_catalog.regexp_replace({}, '[[:space:]]+', ' ', 'g')"
TABLE_VERSION = f"""
WITH RECURSIVE {MEANING.format(root="$1", more="")}, part AS (
    SELECT c.oid, c.relkind, c.relfilenode, c.relreplident, '0' AS attached, true AS is_root,
           (SELECT y.xmin FROM pg_catalog.pg_type y WHERE y.oid = c.reltype) AS named
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = $1::oid AND n.nspname = $2 AND c.relname = $3
    UNION ALL
    SELECT c.oid, c.relkind, c.relfilenode, c.relreplident, i.xmin::text, false, NULL
    FROM part
    JOIN pg_catalog.pg_inherits i ON part.relkind = 'p' AND i.inhparent = part.oid
    JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
)
SELECT w.name,
       (pg_catalog.array_agg(f.fault || ' on ' || part.oid::regclass::text
                             ORDER BY part.is_root DESC, part.oid)
        FILTER (WHERE f.fault IS NOT NULL))[1] AS fault,
       pg_catalog.md5(pg_catalog.string_agg(pg_catalog.concat_ws(
           ' ', part.oid, part.relfilenode, part.relreplident, part.attached, part.named,
           g.oid, g.xmin, p.xmin, CASE WHEN part.is_root THEN meaning.digest END
       ), ',' ORDER BY part.oid)) AS version,
       pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::bigint - 1
       AS last_transaction_id
FROM part CROSS JOIN meaning
LEFT JOIN ROWS FROM (pg_catalog.unnest($6::text[]), pg_catalog.unnest($7::int[])) AS w (name, type)
       ON part.is_root OR w.type <> {TRUNCATE_TYPE}
LEFT JOIN pg_catalog.pg_trigger g ON g.tgrelid = part.oid AND g.tgname = w.name
LEFT JOIN pg_catalog.pg_proc p ON p.oid = g.tgfoid
CROSS JOIN LATERAL (SELECT CASE
    WHEN w.name IS NULL THEN NULL
    WHEN g.oid IS NULL THEN 'missing'
    WHEN g.tgenabled = 'D' THEN 'disabled'
    WHEN g.tgenabled <> 'A' THEN 'not ENABLE ALWAYS'
    WHEN g.tgtype <> w.type OR g.tgqual IS NOT NULL OR g.tgattr::text <> ''
    THEN 'restricted'
    WHEN p.proname <> $4 THEN 'with another function'
    WHEN p.prosrc <> $5 AND {_WITHOUT_SPACE.format("p.prosrc")} <> {_WITHOUT_SPACE.format("$5")}
         OR (p.proconfig @> $8::text[]) IS NOT TRUE
    THEN 'whose function is altered'
END) AS f (fault)
GROUP BY w.name
"""  # noqa: S608  constants


def version_arguments(origin: TableOrigin, triggers: TableTriggers | None = None) -> Sequence[Any]:
    """The arguments of TABLE_VERSION for a table, perhaps with triggers."""
    place = (origin.table_id, origin.schema_name, origin.table_name)
    if triggers is None:
        return (*place, "", "", [], [], [])
    names, types = triggers.names, triggers.types
    wanted = ([*names.values()], [types[event] for event in names])
    return (*place, triggers.function, triggers.body, *wanted, [*FUNCTION_SETTINGS])


class TriggerCheck:
    """Detects missing and changed triggers of one table, from its first check on."""

    def __init__(self, origin: TableOrigin, triggers: TableTriggers, *, script: str) -> None:
        self._origin = origin
        self._triggers = triggers
        script = f"{script} --partitioned" if origin.is_partitioned else script
        self._remedy = f"run the output of `{script}`"
        self._found: dict[str, str] = {}  # at the first check: {trigger: version}

    @property
    def arguments(self) -> Sequence[Any]:
        """The arguments of TABLE_VERSION."""
        return version_arguments(self._origin, self._triggers)

    def fault(self, rows: Sequence[Any]) -> str | None:
        """Why changes may be lost since the first check, by rows of TABLE_VERSION; None: none."""
        if not rows:
            return "the table was dropped or replaced; its schema will be read again"
        found_faults = {name: fault for name, fault, *_ in rows if fault is not None}
        wrong: dict[str, list[str]] = {}  # {fault: triggers}
        for name in self._triggers.names.values():
            if name in found_faults:
                wrong.setdefault(found_faults[name], []).append(name)
        if wrong:
            faults = (f"triggers {fault}: {', '.join(names)}" for fault, names in wrong.items())
            return f"{'; '.join(faults)}; {self._remedy}"
        found = {name: version for name, _, version, _ in rows}
        self._found = self._found or found
        if self._found == found:
            return None
        altered = "ALTER TABLE, ALTER TYPE, TRUNCATE or VACUUM FULL ran"
        if self._origin.is_partitioned:
            return f"partitions were attached or detached, {altered}, or triggers changed"
        return f"triggers were recreated or disabled for a time, or {altered}; rows are read again"
