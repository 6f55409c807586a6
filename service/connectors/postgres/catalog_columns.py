"""SQL of the configuration: a query instead of a table, and a filter of rows."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyarrow import types

from lookup_core.errors import BackendError, ErrorCode, nearest_name
from lookup_core.type_texts import type_text
from service.connectors.postgres.column_types import (
    ColumnReading,
    KeySending,
    PostgresType,
    column_reading,
    key_sending,
    quoted,
    requested_reading,
)
from service.connectors.postgres.column_values import Attributes
from service.connectors.postgres.errors import statement_fault, unavailable
from service.connectors.postgres.sessions import CatalogRow, RunQuery, run_own, sql_text
from service.connectors.postgres.settings import PostgresSettings

WITHOUT_FEED = (
    "remove refresh.listen and refresh.changelog; cache.ttl bounds the age of rows, or "
    "refresh.reload with cache.mode: full"
)

_TYPE_AND_COLLATION = """
pg_catalog.pg_typeof({0})::oid,
CASE WHEN (SELECT k.typcollation FROM pg_catalog.pg_type k WHERE k.oid = pg_catalog.pg_typeof({0}))
     <> 0 THEN pg_catalog.pg_collation_for({0})::regcollation::oid END
"""


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
_MAX_INLINE_DIGITS = 37  # of a numeric of 23 bytes; from 25 on, values may be stored out of line


async def read_columns(
    run: RunQuery, settings: PostgresSettings, table_id: int
) -> Mapping[str, CatalogRow]:
    """The columns of the relation by name; raises BackendError."""
    if settings.query is None:
        records = await run_own(run, _COLUMNS, table_id)
    else:
        records = await run_own(run, _QUERY_COLUMNS, 0, *await described_query(run, settings))
    return {record["name"]: record for record in records}


def refuse_unreadable(
    settings: PostgresSettings, columns: Mapping[str, CatalogRow], names: Sequence[str]
) -> None:
    """Raise BackendError for a column that does not exist, or that the role may not read."""
    for name in names:
        if name not in columns:
            detail = f"{settings.table}: no column {name}{nearest_name(name, list(columns))}"
            raise BackendError(ErrorCode.TABLE_UNAVAILABLE, detail)
    hidden = ", ".join(name for name in names if not columns[name]["may_be_read"])
    if hidden:
        detail = f"{settings.table}: the role of the DSN may not read {hidden}; grant it SELECT"
        raise BackendError(ErrorCode.FORBIDDEN, detail)


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
    readings = {name: column_reading(_type(column)) for name, column in columns.items()}
    faults = []
    for name, wanted in settings.types.items():
        if name not in columns:
            hint = nearest_name(name, list(columns)).removeprefix("; ")
            faults.append(f"no column {name} among the columns ({hint})")
            continue
        found = requested_reading(_type(columns[name]), wanted)
        if isinstance(found, ColumnReading):
            readings[name] = found
        else:
            faults.append(f"column {name} is not {type_text(wanted)} ({found})")
    if faults:
        raise unavailable(settings, f"types: {', '.join(faults)}; correct types")
    return tuple(readings.items())


def sending_of(settings: PostgresSettings, column: CatalogRow) -> KeySending:
    """How a key column is sent; raises BackendError for an unsuitable one."""
    sending = key_sending(column["name"], _type(column))
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


def _type(column: CatalogRow) -> PostgresType:
    return PostgresType(
        name=column["type_name"],
        is_builtin=column["is_builtin"],
        modifier=column["modifier"],
        has_exact_equality=column["has_exact_equality"],
        is_array=column["is_array"],
        is_enum=column["is_enum"],
        schema_name=column["type_schema"],
        attributes=_attributes(column["attributes"]),
    )


def _attributes(paths: str | None) -> Attributes:
    tree: dict[str, Any] = {}
    for *outer, name, is_document in json.loads(paths or "[]"):  # shorter paths come first
        within = tree
        for each in outer:
            within = within[each]
        within[name] = None if is_document == "true" else {}
    return tree


def has_exact_changes(
    table: CatalogRow, *, key: Sequence[CatalogRow], columns: Sequence[CatalogRow]
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
    kind = column_reading(_type(column)).type
    return types.is_decimal(kind) and (has_full_identity or kind.precision <= _MAX_INLINE_DIGITS)
