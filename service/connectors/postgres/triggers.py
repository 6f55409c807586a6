"""Triggers that publish a table's changes: their SQL, and whether the table has them."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Template
from typing import Any

from lookup_core.dimension_schema import TableOrigin
from lookup_core.errors import ErrorCode, InvalidRequest
from service.connectors.postgres.table import quoted

_LONGEST_NAME_BYTES = 63  # PostgreSQL cuts longer names off
# A part of a name as `to_regclass` reads it: whatever is not quoted is in lower case.
_PART = re.compile(r'\s*(?:"(?P<quoted>(?:[^"]|"")+)"|(?P<plain>[^\s".]+))\s*(?:\.|$)')
_MOST_PARTS = 3  # the first of three can only be the database itself
_LOWER = str.maketrans({chr(letter): chr(letter + 32) for letter in range(ord("A"), ord("Z") + 1)})

# A piece of keys ends with the key that passes the first number; with one key more, and what stands
# around them, it is still below 8,000.
_PIECE_BYTES, _KEY_BYTES = 5_000, 2_900
_MOST_KEYS = 10_000  # of one statement, the old and the new ones; beyond, all are told as changed
_INDENT = " " * 20
# Numbers that readers of JSON would round are sent as texts.
_VALUE = (
    "CASE pg_typeof({column}) WHEN 'numeric'::regtype "
    "THEN to_jsonb({column}::text) ELSE to_jsonb({column}) END"
)
_EVENTS = {
    "insert": "REFERENCING NEW TABLE AS new_rows ",
    "update": "REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows ",
    "delete": "REFERENCING OLD TABLE AS old_rows ",
    "truncate": "",
}

_SCRIPT = Template("""\
-- Tells which keys of
--   $table
-- have changed, to whoever listens to the channel
--   $channel
-- by NOTIFY, when it is committed: keys only, never values. It can be run again at any time, and
-- needs PostgreSQL 13 or newer, the owner of the table, and CREATE on its schema. To remove it:
--   DROP FUNCTION $function() CASCADE;
-- What to know before:
-- * Commits that notify wait for one another. PREPARE TRANSACTION is refused to those that did.
-- * A statement that changes more than a few thousand rows tells that all may have changed.
-- * Nothing is told of what logical replication applies to this table, nor of statements on its
--   partitions or children instead of itself. Who listens sees, some seconds later, that triggers
--   are gone, disabled or made anew, and believes nothing that was cached before.
BEGIN;
SET LOCAL lock_timeout = '5s';  -- who waits for the table would hold up all who use it
SET LOCAL client_min_messages = warning;  -- that a trigger was not there is no news

DO 'BEGIN PERFORM pg_catalog.pg_current_xact_id(); END';  -- fails here, not where rows are written

CREATE OR REPLACE FUNCTION $function() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET bytea_output = 'hex'
SET timezone = 'UTC'
AS $body;

$triggers
COMMIT;
""")

_BODY = Template("""
DECLARE
    head CONSTANT text := '{"v":1,"x":"' || pg_current_xact_id()::text || '",';
    keys text[];  -- NULL: nobody knows which
BEGIN
    BEGIN
        CASE TG_OP
            WHEN 'INSERT' THEN
                keys := ARRAY(
                    $new
                    LIMIT $most + 1);
            WHEN 'DELETE' THEN
                keys := ARRAY(
                    $old
                    LIMIT $most + 1);
            WHEN 'UPDATE' THEN
                keys := ARRAY(
                    $old
                    UNION ALL
                    $new
                    LIMIT $most + 1);
            ELSE keys := NULL;
        END CASE;
    EXCEPTION WHEN undefined_column THEN
        keys := NULL;  -- the key was renamed: no reason to fail who writes
    END;
    IF keys IS NULL OR cardinality(keys) > $most
        OR EXISTS (SELECT FROM unnest(keys) AS each(key) WHERE octet_length(key) > $key_bytes)
    THEN
        PERFORM pg_notify($channel, head || '"all":true}');
        RETURN NULL;
    END IF;
    PERFORM pg_notify($channel, head || '"k":[' || string_agg(key, ',') || ']}')
    FROM (
        SELECT key, sum(octet_length(key) + 1) OVER (ROWS UNBOUNDED PRECEDING) / $piece AS piece
        FROM (SELECT DISTINCT key FROM unnest(keys) AS each(key)) AS different
    ) AS placed
    GROUP BY piece;
    RETURN NULL;
END""")


@dataclass(frozen=True, slots=True)
class TriggerNames:
    """What the script makes, by the names that the catalog has for it."""

    function: str
    triggers: Mapping[str, str]  # {kind of statement: trigger}


def trigger_sql(table: str, key: Sequence[str], *, channel: str) -> str:
    """A script that makes the triggers, or makes them anew.

    `table` is read as SQL would read it, the names of the key's columns are as the catalog has
    them. Raises InvalidRequest for names that PostgreSQL cannot have, or that no script can show.
    """
    parts, names = _parts(table), trigger_names(table, key, channel=channel)
    function = ".".join(quoted(part) for part in (*parts[:-1], names.function))
    quoted_table = ".".join(quoted(part) for part in parts)
    triggers = (
        _trigger(name, event, table=quoted_table, function=function)
        for event, name in names.triggers.items()
    )
    return _SCRIPT.substitute(
        channel=channel,
        table=quoted_table,
        function=function,
        body=_dollar_quoted(_body(key, channel)),
        triggers="\n".join(triggers),
    )


def trigger_names(table: str, key: Sequence[str], *, channel: str) -> TriggerNames:
    """What is there after the script of the same table, key and channel has run.

    The same whether or not the table is named with its schema. Raises as `trigger_sql` does.
    """
    parts = _parts(table)
    for name in (*parts, *key, channel):
        _refuse_unusable(name)
    # Its name tells what is in it: two tables or keys never share, nor overwrite, a function.
    digest = hashlib.sha256(repr((parts[-1], tuple(key))).encode()).hexdigest()[:8]
    triggers = {event: _fitting(channel, event) for event in _EVENTS}
    return TriggerNames(_fitting(channel, digest), triggers)


def _parts(table: str) -> tuple[str, ...]:
    """Schema and name, as far as they are given."""
    found = list(_PART.finditer(table))
    is_whole = "".join(each[0] for each in found) == table and not table.rstrip().endswith(".")
    if not is_whole or not 1 <= len(found) <= _MOST_PARTS:
        raise InvalidRequest(ErrorCode.BAD_REQUEST, f"{table}: is not the name of a table")
    names = (each["quoted"] or each["plain"].translate(_LOWER) for each in found)
    parts = tuple(name.replace('""', '"') for name in names)
    return parts[-2:]


def _refuse_unusable(name: str) -> None:
    # A line break would end the comment that the name stands in.
    if not name.isprintable() or len(name.encode()) > _LONGEST_NAME_BYTES:
        reason = f"has more than {_LONGEST_NAME_BYTES} bytes, or characters that cannot be shown"
        raise InvalidRequest(ErrorCode.BAD_REQUEST, f"{name!a} {reason}")


def _fitting(channel: str, ending: str) -> str:
    """A name that tells both, and is not longer than names are."""
    name = f"{channel}_{ending}"
    if len(name.encode()) <= _LONGEST_NAME_BYTES:
        return name
    digest = hashlib.sha256(channel.encode()).hexdigest()[:8]
    room = _LONGEST_NAME_BYTES - len(f"_{digest}_{ending}")
    return f"{channel.encode()[:room].decode(errors='ignore')}_{digest}_{ending}"


def _trigger(name: str, event: str, *, table: str, function: str) -> str:
    # For ever, also in sessions that call themselves replicas to load without checks.
    return f"""\
DROP TRIGGER IF EXISTS {quoted(name)} ON {table};
CREATE TRIGGER {quoted(name)} AFTER {event.upper()} ON {table}
    {_EVENTS[event]}FOR EACH STATEMENT
    EXECUTE FUNCTION {function}();
ALTER TABLE {table} ENABLE ALWAYS TRIGGER {quoted(name)};
"""


def _body(key: Sequence[str], channel: str) -> str:
    return _BODY.substitute(
        old=_keys_of("old_rows", key),
        new=_keys_of("new_rows", key),
        channel=_literal(channel),
        most=_MOST_KEYS,
        key_bytes=_KEY_BYTES,
        piece=_PIECE_BYTES,
    )


def _keys_of(rows: str, key: Sequence[str]) -> str:
    """A query of keys as JSON; those with a NULL in them are nobody's."""
    columns = [f"{rows}.{quoted(name)}" for name in key]
    are_known = " AND ".join(f"{column} IS NOT NULL" for column in columns)
    values = f",\n{_INDENT}    ".join(_VALUE.format(column=column) for column in columns)
    select = f"SELECT jsonb_build_array(\n{_INDENT}    {values})::text"
    return f"{select}\n{_INDENT}FROM {rows} WHERE {are_known}"


def _literal(text: str) -> str:
    """The text as SQL reads it back, whatever `standard_conforming_strings` says."""
    doubled = text.replace("'", "''").replace("\\", "\\\\")
    return f"E'{doubled}'" if "\\" in text else f"'{doubled}'"


def _dollar_quoted(body: str) -> str:
    tag = "$sidelook$"
    while tag in body:
        tag = f"{tag[:-1]}_$"
    return f"{tag}{body}\n{tag}"


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


class TriggerCheck:
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
