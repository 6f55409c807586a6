"""Triggers that publish a table's changed keys: their SQL script, and their check."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Template
from typing import Any

from lookup_core.dimension_schema import TableOrigin
from lookup_core.errors import ErrorCode, InvalidRequest
from service.connectors.postgres import sql_text
from service.connectors.postgres.column_types import MAX_NAME_BYTES, quoted
from service.connectors.postgres.sessions import dollar_quoted

# A part of a name as in `to_regclass`, which folds unquoted names to lower case.
_PART = re.compile(r'\s*(?:"(?P<quoted>(?:[^"]|"")+)"|(?P<plain>[^\s".]+))\s*(?:\.|$)')
_MAX_PARTS = 3  # database, schema, table; the database is ignored
_LOWER = str.maketrans({chr(letter): chr(letter + 32) for letter in range(ord("A"), ord("Z") + 1)})

# A payload has less than 8,000 bytes: keys up to the first number, one more key, and the rest.
_PIECE_BYTES, _KEY_BYTES = 5_000, 2_900
_MAX_KEYS = 10_000  # old and new ones of a statement; beyond, the whole table counts as changed
_NUMBERS = {"most": _MAX_KEYS, "key_bytes": _KEY_BYTES, "piece": _PIECE_BYTES}
_DIGEST_CHARACTERS = 8
_INDENT = " " * 20
# Numerics are sent as texts: JSON parsers would round them.
_VALUE = (
    "CASE pg_typeof({column}) WHEN 'numeric'::regtype "
    "THEN to_jsonb({column}::text) ELSE to_jsonb({column}) END"
)
_TRUNCATE = "truncate"
_EVENTS = {
    "insert": "REFERENCING NEW TABLE AS new_rows ",
    "update": "REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows ",
    "delete": "REFERENCING OLD TABLE AS old_rows ",
    _TRUNCATE: "",
}
# Bits of `pg_trigger.tgtype`; without the others, a trigger is AFTER.
_OF_ROWS = 1
_TYPES = {"insert": 4, "update": 16, "delete": 8, _TRUNCATE: 32}
# Settings of the function, as in `pg_proc.proconfig`.
FUNCTION_SETTINGS = ("search_path=pg_catalog, pg_temp", "bytea_output=hex", "TimeZone=UTC")

# {whether the table is partitioned: limits}. Partitions get the triggers of rows of their table,
# also when they are attached. Such triggers have no transition tables.
_LIMITS = {
    False: """\
-- * A statement that changes more than ten thousand rows reports the whole table as changed.
-- * Changes by logical replication, and by statements on partitions or children, are not reported.
""",
    True: """\
-- * Each changed row runs the function. A transaction that changes more than ten thousand rows
--   reports the whole table as changed.
-- * Sidecars notice within seconds when partitions are attached, detached or truncated.
""",
}

_SCRIPT = Template(sql_text("trigger_script"))

# Sidecars refuse a function with another text, except for white space: after a change there, users
# run the script again. No comments, which migration tools remove. NULL keys are unknown. A renamed
# key must not fail the writer.
_BODY = Template("\n" + sql_text("statement_trigger"))


# For each row; only expressions, which need no query plan. A setting that ends with the transaction
# counts its changes; beyond the most, the whole table is reported once. As above, no comments.
_ROW_BODY = Template("\n" + sql_text("row_trigger"))


@dataclass(frozen=True, slots=True)
class TableTriggers:
    """The script's function and triggers, as they are in the catalog."""

    function: str  # its name
    body: str  # the function's source
    names: Mapping[str, str]  # {kind of statement: trigger}
    types: Mapping[str, int]  # {kind of statement: `tgtype`}


def trigger_sql(
    table: str, key: Sequence[str], *, channel: str, is_partitioned: bool = False
) -> str:
    """The script that creates or replaces the triggers.

    `table` is parsed as in SQL; `key` has the column names of the catalog. Raises InvalidRequest
    for names that are invalid or not printable.
    """
    parts = _parts(table)
    made = table_triggers(table, key, channel=channel, is_partitioned=is_partitioned)
    function = ".".join(quoted(part) for part in (*parts[:-1], made.function))
    quoted_table = ".".join(quoted(part) for part in parts)
    triggers = (
        _trigger(name, event, table=quoted_table, function=function, is_partitioned=is_partitioned)
        for event, name in made.names.items()
    )
    mismatch = (
        "is not partitioned; run gen-triggers without --partitioned"
        if is_partitioned
        else "is partitioned; run gen-triggers with --partitioned"
    )
    return _SCRIPT.substitute(
        channel=channel,
        table=quoted_table,
        literal=_literal(quoted_table),
        limits=_LIMITS[is_partitioned],
        is_other="relkind <> 'p'" if is_partitioned else "relkind = 'p'",
        mismatch=mismatch,
        function=function,
        body=dollar_quoted(made.body),
        triggers="\n".join(triggers),
    )


def table_triggers(
    table: str, key: Sequence[str], *, channel: str, is_partitioned: bool = False
) -> TableTriggers:
    """What the script makes for this table, key and channel; raises as `trigger_sql` does."""
    parts = _parts(table)
    for name in (*parts, *key, channel):
        # A line break would end the comment with the name.
        if not name.isprintable() or len(name.encode()) > MAX_NAME_BYTES:
            reason = f"has more than {MAX_NAME_BYTES} bytes, or characters that are not printable"
            raise InvalidRequest(ErrorCode.BAD_REQUEST, f"{name!a} {reason}")
    # A function per table and key.
    identity = (parts[-1], tuple(key), "rows") if is_partitioned else (parts[-1], tuple(key))
    digest = hashlib.sha256(repr(identity).encode()).hexdigest()[:_DIGEST_CHARACTERS]
    rows = _OF_ROWS if is_partitioned else 0
    body = _body_of_rows(key, channel, digest) if is_partitioned else _body(key, channel)
    return TableTriggers(
        function=_fitting(channel, digest),
        body=body,
        names={event: _fitting(channel, event) for event in _EVENTS},
        types={
            event: number if event == _TRUNCATE else number | rows
            for event, number in _TYPES.items()
        },
    )


def _body(key: Sequence[str], channel: str) -> str:
    return _BODY.substitute(
        _NUMBERS,
        old=_keys_of("old_rows", key),
        new=_keys_of("new_rows", key),
        channel=_literal(channel),
    )


def _body_of_rows(key: Sequence[str], channel: str, digest: str) -> str:
    return _ROW_BODY.substitute(
        _NUMBERS,
        old=_key_of("OLD", key),
        new=_key_of("NEW", key),
        channel=_literal(channel),
        setting=f"sidelook.changes_of_{digest}",
    )


def _parts(table: str) -> tuple[str, ...]:
    """The name, with its schema if given."""
    found = list(_PART.finditer(table))
    is_whole = "".join(each[0] for each in found) == table and not table.rstrip().endswith(".")
    if not is_whole or not 1 <= len(found) <= _MAX_PARTS:
        raise InvalidRequest(ErrorCode.BAD_REQUEST, f"{table}: is not the name of a table")
    names = (each["quoted"] or each["plain"].translate(_LOWER) for each in found)
    parts = tuple(name.replace('""', '"') for name in names)
    return parts[-2:]


def _fitting(channel: str, ending: str) -> str:
    """Channel and ending, with a long channel shortened to its start and a hash."""
    name = f"{channel}_{ending}"
    if len(name.encode()) <= MAX_NAME_BYTES:
        return name
    digest = hashlib.sha256(channel.encode()).hexdigest()[:8]
    room = MAX_NAME_BYTES - len(f"_{digest}_{ending}")
    return f"{channel.encode()[:room].decode(errors='ignore')}_{digest}_{ending}"


def _trigger(name: str, event: str, *, table: str, function: str, is_partitioned: bool) -> str:
    each = f"{_EVENTS[event]}FOR EACH STATEMENT"
    if is_partitioned and event != _TRUNCATE:
        each = "FOR EACH ROW"
    only = "ONLY " if is_partitioned and event == _TRUNCATE else ""  # partitions do not have it
    # ALWAYS: also in sessions with `session_replication_role = replica`, as bulk loads use it.
    return f"""\
DROP TRIGGER IF EXISTS {quoted(name)} ON {table};
CREATE TRIGGER {quoted(name)} AFTER {event.upper()} ON {table}
    {each}
    EXECUTE FUNCTION {function}();
ALTER TABLE {only}{table} ENABLE ALWAYS TRIGGER {quoted(name)};
"""


def _keys_of(rows: str, key: Sequence[str]) -> str:
    """A query of keys as JSON, without keys that contain NULL."""
    columns = [f"{rows}.{quoted(name)}" for name in key]
    is_whole = " AND ".join(f"{column} IS NOT NULL" for column in columns)
    return f"SELECT {_json_of(columns)}\n{_INDENT}FROM {rows} WHERE {is_whole}"


def _key_of(row: str, key: Sequence[str]) -> str:
    """An expression of the key as JSON, NULL if it contains NULL."""
    columns = [f"{row}.{quoted(name)}" for name in key]
    is_whole = " AND ".join(f"{column} IS NOT NULL" for column in columns)
    return f"CASE WHEN {is_whole} THEN {_json_of(columns)} END"


def _json_of(columns: Sequence[str]) -> str:
    values = f",\n{_INDENT}    ".join(_VALUE.format(column=column) for column in columns)
    return f"jsonb_build_array(\n{_INDENT}    {values})::text"


def _literal(text: str) -> str:
    """The text as an SQL literal, with any `standard_conforming_strings`."""
    doubled = text.replace("'", "''").replace("\\", "\\\\")
    return f"E'{doubled}'" if "\\" in text else f"'{doubled}'"


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
