"""PostgreSQL catalog: describes the configured relation, and refuses an unsuitable one."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pyarrow import types

from lookup_core.dimension_schema import TableOrigin
from lookup_core.errors import BackendError, ErrorCode, nearest_name, similar_name
from lookup_core.type_texts import type_text
from service.connectors.postgres import sql_text
from service.connectors.postgres.column_types import (
    MAX_NAME_BYTES,
    ColumnReading,
    KeySending,
    PostgresType,
    column_reading,
    key_sending,
    quoted,
    requested_reading,
)
from service.connectors.postgres.errors import is_invalid_name, own_statement_fault, statement_fault
from service.connectors.postgres.sessions import (
    CatalogRow,
    PostgresSettings,
    RunQuery,
    check_meaning,
    run_own,
    unavailable,
)
from service.connectors.postgres.table import (
    MEANING,
    PostgresTable,
    RelationKind,
    read_publications,
)

WITHOUT_FEED = (
    "remove refresh.listen and refresh.changelog; cache.ttl bounds the age of rows, or "
    "refresh.reload with cache.mode: full"
)

_TYPE_AND_COLLATION = """
pg_catalog.pg_typeof({0})::oid,
CASE WHEN (SELECT k.typcollation FROM pg_catalog.pg_type k WHERE k.oid = pg_catalog.pg_typeof({0}))
     <> 0 THEN pg_catalog.pg_collation_for({0})::regcollation::oid END
"""
_COLUMNS = sql_text("columns")

# The columns of a query, described as those of a relation.
_QUERY_COLUMNS = _COLUMNS.replace(
    "pg_catalog.pg_attribute a",
    """(
        SELECT $1::oid AS attrelid, c.number::int2 AS attnum, c.name AS attname,
               c.type_id AS atttypid, -1 AS atttypmod, false AS attisdropped,
               false AS attnotnull, false AS atthasdef, '' AS attgenerated,
               c.collation_id AS attcollation
        FROM unnest($2::text[], $3::oid[], $4::oid[])
             WITH ORDINALITY AS c (name, type_id, collation_id, number)
    ) a""",
)
_EXACT_TYPES = frozenset(
    {"int2", "int4", "int8", "bool", "float4", "float8", "text", "varchar", "uuid"}
    | {"date", "timestamp", "timestamptz"}
)
# {setting of the connector's role: types whose texts in its events it changes}
_CHANGED_BY = {"extra_float_digits": "float", "bytea_output": "bytea"}
_MAX_INLINE_DIGITS = 37  # a numeric of 23 bytes; from 25 on, values may be stored out of line
_TABLE = sql_text("table")

_NAMES = sql_text("relation_names")

_OTHER_KINDS = {"S": "a sequence", "i": "an index", "I": "an index", "c": "a composite type"}
_NO_FEED = {
    RelationKind.VIEW: "is a view, and changes of its tables are not reported for its rows",
    RelationKind.MATERIALIZED_VIEW: "is a materialized view, and REFRESH reports no changes",
    RelationKind.FOREIGN_TABLE: "is a foreign table, and its own server reports the changes",
    RelationKind.QUERY: "is a query, and changes of its tables are not reported for its rows",
}
# A CatalogRow of a query.
_QUERY_ENTRY: dict[Any, Any] = {
    **dict.fromkeys(("database", "table_name", "foreign_part")),
    **dict.fromkeys(("is_subscribed", "has_full_identity", "has_exact_texts"), False),
    **dict.fromkeys(("primary_key", "identity", "inexact_settings"), ()),
    "oid": 0,
    "schema_name": "",
    "kind": RelationKind.QUERY.value,
}
# What a filter names. Operators have no names of their own: those of the server are none of these.
_NAMED = sql_text("filter_objects")
_MEANING = (
    f"WITH RECURSIVE {MEANING.replace('/* more objects */', _NAMED)}"  # noqa: S608  constants
    " SELECT digest FROM meaning"
)
_CHANGING_FUNCTIONS = sql_text("changing_functions")
_NAME = re.compile(r'"((?:[^"]|"")+)"|([^\W\d]\w*)')
_CALL = re.compile(r'(?:"((?:[^"]|"")+)"|([^\W\d]\w*))\s*\(')


async def described_query(
    run: RunQuery, settings: PostgresSettings
) -> tuple[Sequence[str], Sequence[int], Sequence[int | None]]:
    """The names, types and collations of the query's columns; reads no row.

    Raises BackendError: `table_unavailable` with the server's message if it refuses the query.
    """
    # The join has one row of NULLs, and does not run the query.
    rows = f"FROM (SELECT) AS one LEFT JOIN (\n{settings.query}\n) AS t ON false"
    (record,) = await check_statement(run, f"SELECT t.* {rows}", settings)
    # Alone, too: a text that ends the parenthesis around it, and begins another one, is no query.
    await check_statement(run, f"EXPLAIN (COSTS off) {settings.query}", settings)
    names = list(record.keys())
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise unavailable(settings, f"has several columns {', '.join(twice)}; rename them with AS")
    if not names:
        raise unavailable(settings, "has no column; select the key and others")
    values = ", ".join(_TYPE_AND_COLLATION.format(f"t.{quoted(name)}") for name in names)
    (record,) = await run(f"SELECT {values} {rows}", [])
    found = [record[at] for at in range(2 * len(names))]
    return names, found[::2], found[1::2]


async def check_statement(
    run: RunQuery, statement: str, settings: PostgresSettings, *, key: str = ""
) -> Sequence[CatalogRow]:
    """Run a statement that has SQL of this key of the configuration; it reads no row."""
    try:
        return await run(statement, [])
    except BackendError as error:
        fault = statement_fault(error)
        if fault is None:
            raise
        reason = f"{key}the server refuses it: {fault}; correct it"
        raise unavailable(settings, reason, is_permanent=False) from error


async def read_columns(
    run: RunQuery, settings: PostgresSettings, table_id: int
) -> Mapping[str, CatalogRow]:
    """The columns of the relation by name; raises BackendError."""
    if settings.query is None:
        records = await run_own(run, _COLUMNS, table_id)
    else:
        records = await run_own(run, _QUERY_COLUMNS, 0, *await described_query(run, settings))
    return {record["name"]: record for record in records}


def _read_names(settings: PostgresSettings, columns: Mapping[str, CatalogRow]) -> tuple[str, ...]:
    """The names of the columns besides the key; raises BackendError unless all may be read."""
    names = settings.columns or tuple(name for name in columns if name not in settings.key)
    used = (*settings.key, *names)
    for name in used:
        if name not in columns:
            detail = f"{settings.table}: no column {name}{nearest_name(name, list(columns))}"
            raise BackendError(ErrorCode.TABLE_UNAVAILABLE, detail)
    hidden = ", ".join(name for name in used if not columns[name]["may_be_read"])
    if hidden:
        detail = f"{settings.table}: the role of the DSN may not read {hidden}; grant it SELECT"
        raise BackendError(ErrorCode.FORBIDDEN, detail)
    if not names:
        reason = "no column other than the key; use a source.query that adds one: true AS found"
        raise unavailable(settings, reason)
    return names


def readable_names(columns: Mapping[str, CatalogRow], numbers: Sequence[int]) -> tuple[str, ...]:
    """The names of the columns; empty unless the role may read, and so sort by, all of them."""
    by_number = {column["number"]: column for column in columns.values()}
    found = [by_number[number] for number in numbers]
    are_readable = all(column["may_be_read"] for column in found)
    return tuple(column["name"] for column in found) if are_readable else ()


def readings_of(
    settings: PostgresSettings, columns: Mapping[str, CatalogRow]
) -> tuple[tuple[str, ColumnReading], ...]:
    """How the columns are read; raises BackendError with all faults of `types`."""
    readings = {
        name: column_reading(PostgresType.of_column(column)) for name, column in columns.items()
    }
    faults = []
    for name, wanted in settings.types.items():
        if name not in columns:
            hint = nearest_name(name, list(columns)).removeprefix("; ")
            faults.append(f"no column {name} among the columns ({hint})")
            continue
        found = requested_reading(PostgresType.of_column(columns[name]), wanted)
        if isinstance(found, ColumnReading):
            readings[name] = found
        else:
            faults.append(f"column {name} is not {type_text(wanted)} ({found})")
    if faults:
        raise unavailable(settings, f"types: {', '.join(faults)}; correct types")
    return tuple(readings.items())


def sending_of(settings: PostgresSettings, column: CatalogRow) -> KeySending:
    """How a key column is sent; raises BackendError for an unsuitable one."""
    sending = key_sending(column["name"], PostgresType.of_column(column))
    if isinstance(sending, str):
        raise unavailable(settings, f"key column {column['name']}: {sending}")
    if (fault := _feed_fault(settings, column)) is not None:
        raise unavailable(settings, f"key column {column['name']} {fault}; or {WITHOUT_FEED}")
    if not sending.has_exact_equality and (settings.is_followed or settings.is_whole):
        reason = (
            f"key column {column['name']}: its type or collation treats different texts as equal, "
            "so a change does not identify the cached keys; use cache.mode partial with a short "
            "cache.ttl, and remove refresh, or use a key of type text"
        )
        raise unavailable(settings, reason)
    return sending


def _feed_fault(settings: PostgresSettings, column: CatalogRow) -> str | None:
    """Why the feed does not report the keys of the column, with the remedy; None if it does."""
    if settings.is_followed and column["is_virtual"]:
        # Triggers cannot read it, and publications leave it out.
        return "is a virtual generated column, which feeds do not report; make it STORED"
    if settings.has_triggers and column["has_json_cast"]:
        return "has a type whose cast to json changes the keys in notifications; drop the cast"
    return None


def has_exact_changes(
    table: CatalogRow, key: Sequence[CatalogRow], columns: Sequence[CatalogRow]
) -> bool:
    """Whether a row in the table's changelog certainly equals the queried row of its key."""
    has_full_identity = table["has_full_identity"]
    inexact = {_CHANGED_BY[name] for name in table["inexact_settings"]}
    kinds = {each["type_name"].rstrip("0123456789") for each in (*key, *columns)}
    return (
        table["has_exact_texts"]
        and not inexact & kinds
        and not table["has_unchecked_columns"]
        and _has_one_row_each(table, key)
        and all(_is_exact(each, has_full_identity) for each in (*key, *columns))
    )


def _has_one_row_each(table: CatalogRow, key: Sequence[CatalogRow]) -> bool:
    """Whether a key has at most one row, with its changes in order.

    Kafka keeps the order of one primary key's changes only: rows of another unique key may be in
    several partitions. A table with children also shows their rows.
    """
    primary_key = {*table["primary_key"]}
    is_within = bool(primary_key) and primary_key <= {column["number"] for column in key}
    return is_within and table["has_immediate_key"] and table["child"] is None


def _is_exact(column: CatalogRow, has_full_identity: bool) -> bool:  # noqa: FBT001  a fact
    """Whether the changelog has the values of the column as they are.

    Kafka Connect replaces NULL by the column's default, omits generated columns, and may lose the
    modifiers of a domain. Without REPLICA IDENTITY FULL, an update omits unchanged values that are
    stored out of line: texts have a placeholder then, others may be NULL.
    """
    is_default_for_null = column["may_be_null"] and column["has_default"]
    is_other = column["is_generated"] or column["is_domain"] or column["is_array"]
    if is_default_for_null or is_other:
        return False
    if not column["is_builtin"]:
        return bool(column["is_enum"])
    name = column["type_name"]
    if name == "bytea":
        return has_full_identity
    if name != "numeric":
        return name in _EXACT_TYPES
    kind = column_reading(PostgresType.of_column(column)).type
    return types.is_decimal(kind) and (has_full_identity or kind.precision <= _MAX_INLINE_DIGITS)


def _is_plain(settings: PostgresSettings, kind: RelationKind) -> bool:
    """Whether the dimension has all rows of a table, in the types of its changelog."""
    return kind is RelationKind.TABLE and settings.where is None and not settings.types


async def read_table(run: RunQuery, settings: PostgresSettings) -> PostgresTable:
    """Describe the configured relation; `run` sends the queries with their arguments.

    Raises BackendError: `table_unavailable` with the reason and the nearest name, `forbidden` with
    a column that may not be read, and the errors of `run`.
    """
    await check_meaning(run, settings)
    entry = await _entry(run, settings.table) if settings.query is None else _QUERY_ENTRY
    kind = _suitable_kind(settings, entry)
    version = await _version(run, settings, entry)  # first: a later change is noticed
    columns = await read_columns(run, settings, entry["oid"])
    names = _read_names(settings, columns)
    own = [[columns[name] for name in each] for each in (settings.key, names)]
    primary_key = readable_names(columns, entry["primary_key"])
    origin = TableOrigin(
        entry["schema_name"],
        entry["table_name"] or settings.table,
        table_id=entry["oid"],
        reports_rows=_is_plain(settings, kind) and has_exact_changes(entry, *own),
        has_full_identity=entry["has_full_identity"],
        loses_keys=not {*settings.key} <= {*entry["identity"]},
        is_partitioned=kind is RelationKind.PARTITIONED,
        has_row_order=bool(primary_key),
        database=entry["database"],
        is_subscribed=entry["is_subscribed"],
        version=version,
    )
    table = PostgresTable(
        origin,
        keys=tuple((name, sending_of(settings, columns[name])) for name in settings.key),
        columns=readings_of(settings, {name: columns[name] for name in names}),
        primary_key=primary_key,
        versions=settings.versions,
        kind=kind,
        has_foreign_parts=entry["foreign_part"] is not None,
        query=settings.query,
        where=settings.where,
        is_guarded=settings.pgbouncer,
        row_bytes=settings.row_bytes,
        has_several_rows=settings.has_several_rows,
    )
    if settings.where is not None:
        await check_filter(run, settings, table)
    return table


async def _version(run: RunQuery, settings: PostgresSettings, entry: CatalogRow) -> str:
    """What the look of its rows depends on; empty for a query. Refuses incomplete publications."""
    if settings.query is not None:
        return ""
    meaning = await row_meaning(run, entry["oid"], where=settings.where)
    if not (settings.is_followed and settings.needs_publication):
        return meaning
    return f"{meaning}{await read_publications(run, settings, entry['oid'])}"


async def _entry(run: RunQuery, table: str) -> CatalogRow:
    is_too_long = any(len(part.strip('"').encode()) > MAX_NAME_BYTES for part in table.split("."))
    try:
        records = [] if is_too_long else await run(_TABLE, [table])
    except BackendError as error:
        if not is_invalid_name(error):
            raise own_statement_fault(error) from error.__cause__
        # too many dots, or another database
        detail = f"{table}: is not the name of a table; write schema.table, as in SQL"
        raise BackendError(ErrorCode.TABLE_UNAVAILABLE, detail) from error
    if records:
        return records[0]
    names = [record["name"] for record in await run_own(run, _NAMES)]
    detail = f"{table}: no such table; {_nearest_relation(table, names)}"
    raise BackendError(ErrorCode.TABLE_UNAVAILABLE, detail)


def _nearest_relation(table: str, names: Sequence[str]) -> str:
    """The remedy for a missing relation: one with a similar name, first of the same schema."""
    schema, _, wanted = (f"public.{table}" if "." not in table else table).rpartition(".")
    by_table: dict[str, str] = {}
    for name in sorted(names, key=lambda name: name.rpartition(".")[0] != schema):
        by_table.setdefault(name.rpartition(".")[2].strip('"'), name)
    close = similar_name(wanted.strip('"'), list(by_table))
    return f"did you mean {by_table[close]}?" if close else "correct its name, or create it"


def _suitable_kind(settings: PostgresSettings, entry: CatalogRow) -> RelationKind:
    """The kind of the relation; raises BackendError if it cannot be looked up or followed."""
    if entry["kind"] not in {kind.value for kind in RelationKind}:
        other = _OTHER_KINDS.get(entry["kind"], "another relation")
        raise unavailable(settings, f"is {other}; name a table, a view or a foreign table")
    kind = RelationKind(entry["kind"])
    if settings.is_followed and kind in _NO_FEED:
        raise unavailable(settings, f"{_NO_FEED[kind]}; {WITHOUT_FEED}")
    if kind is RelationKind.QUERY:
        return kind
    if entry["has_row_security"]:
        raise unavailable(settings, "row-level security hides rows from the role of the DSN")
    if not entry["is_populated"]:
        reason = "has no data yet; run REFRESH MATERIALIZED VIEW"
        raise unavailable(settings, reason, is_permanent=False)
    if settings.is_followed:
        _refuse_unreported_parts(settings, entry, kind)
    return kind


def _refuse_unreported_parts(
    settings: PostgresSettings, entry: CatalogRow, kind: RelationKind
) -> None:
    child, parent, is_whole = entry["child"], entry["parent"], kind is RelationKind.PARTITIONED
    if entry["foreign_part"] is not None:
        reason = f"its partition {entry['foreign_part']} is a foreign table, whose own server "
        raise unavailable(settings, f"{reason}reports the changes; {WITHOUT_FEED}")
    if child is not None and not is_whole:
        reason = f"{child} inherits from it, and reports changes under its own name; "
        remedy = "end the inheritance, or remove refresh.listen and refresh.changelog"
        raise unavailable(settings, reason + remedy)
    if settings.has_triggers and parent is not None and not is_whole:
        reason = f"statements on its parent table {parent} do not run its triggers; "
        remedy = "end the inheritance, or use refresh.changelog instead of refresh.listen"
        raise unavailable(settings, reason + remedy)


async def row_meaning(run: RunQuery, table_id: int, *, where: str | None = None) -> str:
    """The digest of what the relation's rows look like, with this filter.

    Raises the errors of `run`.
    """
    (record,) = await run_own(run, _MEANING, table_id, names_in(where), where or "")
    return str(record["digest"])


async def check_filter(run: RunQuery, settings: PostgresSettings, table: PostgresTable) -> None:
    """Check that the server accepts the filter, and that a feed reports all changes of its result.

    Raises BackendError: `table_unavailable` with the reason.
    """
    rows = table.sql_name if table.query is None else f"(\n{table.query}\n) AS t"
    # Without the parentheses, too: a text that ends them, and begins others, is no condition.
    alone = f"EXPLAIN (COSTS off) SELECT FROM {rows} WHERE {table.where}"
    for statement in (f"SELECT FROM {table.from_item()} WHERE false", alone):
        await check_statement(run, statement, settings, key="source.where: ")
    if settings.is_followed:
        calls, names = _found(_CALL, table.where), names_in(table.where)
        functions = await run(_CHANGING_FUNCTIONS, [calls, names, table.origin.table_id])
        changing = ", ".join(each["name"] for each in functions)
        if changing:
            reason = f"source.where calls {changing}, whose result may change without a change of "
            raise unavailable(settings, f"{reason}the row; {WITHOUT_FEED}")


def names_in(where: str | None) -> list[str]:
    """The names in a filter, of functions and types among others; also those in its texts."""
    return _found(_NAME, where)


def _found(pattern: re.Pattern[str], where: str | None) -> list[str]:
    found = pattern.findall(where or "")
    return [name.replace('""', '"') or plain.lower() for name, plain in found]
