"""PostgreSQL catalog queries: describe a configured table, refuse what cannot be looked up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pyarrow import types

from lookup_core.errors import BackendError, ErrorCode, nearest_name
from service.connectors.postgres.settings import PostgresSettings
from service.connectors.postgres.table import (
    KeySending,
    PostgresTable,
    PostgresType,
    column_reading,
    key_sending,
)


class CatalogRow(Protocol):
    """Its columns by name."""

    def __getitem__(self, name: str, /) -> Any:  # noqa: ANN401  as the database has it
        """The value of the column."""


def postgres_type(column: CatalogRow) -> PostgresType:
    """The type of a column."""
    return PostgresType(
        name=column["type_name"],
        is_builtin=column["is_builtin"],
        modifier=column["modifier"],
        has_exact_equality=column["has_exact_equality"],
    )


_TOLD_TYPES = frozenset(
    {"int2", "int4", "int8", "bool", "float4", "float8", "text", "varchar", "uuid"}
    | {"date", "timestamp", "timestamptz"}
)
_MOST_DIGITS_INLINE = 37  # of a numeric, which has 23 bytes then; from 25 on it may be moved out


def tells_rows(
    table: CatalogRow, *, key: Sequence[CatalogRow], columns: Sequence[CatalogRow]
) -> bool:
    """Whether it is, in the dimension of the table that has this key and these columns."""
    is_sent_again = table["has_full_identity"]
    return (
        table["has_exact_texts"]
        and not table["has_unchecked_columns"]
        and _has_one_row_each(table, key)
        and all(_is_told(each, is_sent_again=is_sent_again) for each in (*key, *columns))
    )


def _has_one_row_each(table: CatalogRow, key: Sequence[CatalogRow]) -> bool:
    """Whether a key has one row at most, and its changes come in their order.

    Changes of one primary key are in one partition. Those of another unique key are where the
    primary keys of its rows have them, which may be read in any order. A table that others inherit
    from shows their rows, too.
    """
    primary_key = {*table["primary_key"]}
    is_within = bool(primary_key) and primary_key <= {column["number"] for column in key}
    return is_within and table["has_immediate_key"] and table["heir"] is None


def _is_told(column: CatalogRow, *, is_sent_again: bool) -> bool:
    """Whether the values of a column are told as they are.

    Kafka Connect writes the default of a column where it is NULL, generated columns are not sent,
    and the modifiers of a domain may get lost on the way.
    """
    is_default_for_null = column["may_be_null"] and column["has_default"]
    if is_default_for_null or column["is_generated"] or column["is_domain"]:
        return False
    return column["is_enum"] or (column["is_builtin"] and _has_told_type(column, is_sent_again))


def _has_told_type(column: CatalogRow, is_sent_again: bool) -> bool:  # noqa: FBT001  a fact
    """Whether values of a builtin type are told, if those stored outside their row are, or not.

    An update that leaves them does not send them again but with REPLICA IDENTITY FULL. Texts have a
    placeholder then; others are NULL, depending on the connector's settings.
    """
    name = column["type_name"]
    if name == "bytea":
        return is_sent_again
    if name != "numeric":
        return name in _TOLD_TYPES
    kind = column_reading(postgres_type(column)).type
    return types.is_decimal(kind) and (is_sent_again or kind.precision <= _MOST_DIGITS_INLINE)


# The search path stays out of it but for the table's own name: a user's schema could shadow these.
_TABLE = """
SELECT c.oid, c.relkind::text AS kind, n.nspname AS schema_name, c.relname AS table_name,
       pg_catalog.row_security_active(c.oid) AS has_row_security,
       c.relreplident = 'f' AS has_full_identity,
       (SELECT pg_catalog.format('%I.%I', hn.nspname, h.relname)
        FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class h ON h.oid = i.inhrelid
        JOIN pg_catalog.pg_namespace hn ON hn.oid = h.relnamespace
        -- nobody else reads the rows of a temporary one, whoever made it
        WHERE i.inhparent = c.oid AND h.relpersistence <> 't' ORDER BY 1 LIMIT 1) AS heir,
       (SELECT pg_catalog.format('%I.%I', pn.nspname, p.relname)
        FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class p ON p.oid = i.inhparent
        JOIN pg_catalog.pg_namespace pn ON pn.oid = p.relnamespace
        WHERE i.inhrelid = c.oid ORDER BY 1 LIMIT 1) AS parent,
       ARRAY(SELECT pg_catalog.unnest(i.indkey[0:i.indnkeyatts - 1])
             FROM pg_catalog.pg_index i
             WHERE i.indrelid = c.oid AND i.indisprimary) AS primary_key,
       EXISTS (SELECT FROM pg_catalog.pg_index i
               WHERE i.indrelid = c.oid AND i.indisprimary AND i.indimmediate) AS has_immediate_key,
       -- NOT NULL, but NOT VALID, as it may be from version 18 on
       EXISTS (SELECT FROM pg_catalog.pg_constraint k WHERE k.conrelid = c.oid
               AND k.contype = 'n' AND NOT k.convalidated) AS has_unchecked_columns,
       -- whoever sends changes has settings of its own role
       pg_catalog.current_setting('extra_float_digits')::int > 0
       AND pg_catalog.current_setting('bytea_output') = 'hex'
       AND pg_catalog.getdatabaseencoding() <> 'SQL_ASCII'
       AND NOT EXISTS (SELECT FROM pg_catalog.pg_db_role_setting s,
                                   pg_catalog.unnest(s.setconfig) AS e (setting)
                       WHERE s.setdatabase IN (0, (SELECT d.oid FROM pg_catalog.pg_database d
                                                   WHERE d.datname = current_database()))
                       AND pg_catalog.split_part(e.setting, '=', 1)
                           IN ('extra_float_digits', 'bytea_output')) AS has_exact_texts
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = pg_catalog.to_regclass($1)
"""

# A column of a domain has the type that the domain is made of, and the innermost modifier.
_COLUMNS = """
WITH RECURSIVE layer AS (
    SELECT a.attnum, a.attname, a.atttypid AS type_id, a.atttypmod AS modifier, 0 AS depth
    FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT l.attnum, l.attname, t.typbasetype,
           CASE WHEN t.typtypmod >= 0 THEN t.typtypmod ELSE l.modifier END, l.depth + 1
    FROM layer l JOIN pg_catalog.pg_type t ON t.oid = l.type_id AND t.typtype = 'd'
)
SELECT DISTINCT ON (l.attnum) l.attnum AS number, l.attname AS name, l.modifier,
       t.typname AS type_name, n.nspname = 'pg_catalog' AS is_builtin,
       coalesce(o.collisdeterministic, true) AS has_exact_equality,
       l.depth > 0 AS is_domain, t.typtype = 'e' AS is_enum,
       NOT a.attnotnull AS may_be_null, a.atthasdef AS has_default,
       a.attgenerated <> '' AS is_generated,
       pg_catalog.has_column_privilege($1::oid, l.attnum, 'SELECT') AS may_be_read
FROM layer l JOIN pg_catalog.pg_type t ON t.oid = l.type_id
JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
JOIN pg_catalog.pg_attribute a ON a.attrelid = $1::oid AND a.attnum = l.attnum
LEFT JOIN pg_catalog.pg_collation o ON o.oid = a.attcollation
ORDER BY l.attnum, l.depth DESC
"""

_NAMES = """
SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) AS name
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND n.nspname NOT IN ('pg_catalog', 'information_schema')
ORDER BY 1 LIMIT 10000
"""

_LONGEST_NAME_BYTES = 63  # PostgreSQL cuts longer names off, and would find another table
_REFUSED_KINDS = {
    "v": "is a view, whose rows have no key; name the table",
    "m": "is a materialized view; name the table",
    "f": "is a foreign table; name the table where it is",
    "p": "is a partitioned table, which is not supported",
}


@dataclass(frozen=True, slots=True)
class PostgresCatalog:
    """One table's entry in the catalog, asked for with `run` (query, arguments -> rows)."""

    run: Callable[[str, Sequence[Any]], Awaitable[Sequence[CatalogRow]]]

    async def read_table(self, settings: PostgresSettings) -> PostgresTable:
        """The configured table.

        Raises BackendError: `table_unavailable` with the reason and, for a misspelt name, the
        nearest one; `forbidden` naming a column that may not be read; whatever `run` raises.
        """
        entry = await self._entry(settings.table)
        _refuse_unsuitable(settings, entry)
        records = await self.run(_COLUMNS, [entry["oid"]])
        columns = {record["name"]: record for record in records}
        names = settings.columns or [name for name in columns if name not in settings.key]
        _refuse_unreadable(settings, columns, [*settings.key, *names])
        if not names:
            reason = "has no column besides the key; name the columns, e.g. the key itself"
            raise _unavailable(settings, reason)
        return PostgresTable(
            schema_name=entry["schema_name"],
            name=entry["table_name"],
            keys=tuple((name, _sending(settings, columns[name])) for name in settings.key),
            columns=tuple((name, column_reading(postgres_type(columns[name]))) for name in names),
            table_id=entry["oid"],
            primary_key=_readable(columns, entry["primary_key"]),
            tells_rows=tells_rows(
                entry,
                key=[columns[name] for name in settings.key],
                columns=[columns[name] for name in names],
            ),
            has_full_identity=entry["has_full_identity"],
            versions=settings.versions,
        )

    async def _entry(self, table: str) -> CatalogRow:
        records = [] if _is_too_long(table) else await self._find(table)
        if records:
            return records[0]
        names = [record["name"] for record in await self.run(_NAMES, [])]
        wanted = table if "." in table else f"public.{table}"
        detail = f"{table}: no such table{nearest_name(wanted, names)}"
        raise BackendError(ErrorCode.TABLE_UNAVAILABLE, detail)

    async def _find(self, table: str) -> Sequence[CatalogRow]:
        try:
            return await self.run(_TABLE, [table])
        except BackendError as error:
            if error.code is not ErrorCode.SCHEMA_CHANGED:
                raise
            detail = f"{table}: is not the name of a table"  # too many dots, another database
            raise BackendError(ErrorCode.TABLE_UNAVAILABLE, detail) from error


def _is_too_long(table: str) -> bool:
    return any(len(part.strip('"').encode()) > _LONGEST_NAME_BYTES for part in table.split("."))


def _refuse_unsuitable(settings: PostgresSettings, entry: CatalogRow) -> None:
    if entry["kind"] != "r":
        raise _unavailable(settings, _REFUSED_KINDS.get(entry["kind"], "is not a table"))
    if entry["has_row_security"]:
        raise _unavailable(settings, "row-level security hides rows of it from this role")
    _refuse_untold_changes(settings, entry)


def _refuse_untold_changes(settings: PostgresSettings, entry: CatalogRow) -> None:
    """Refuse a table whose rows would be kept, and may change without a word."""
    heir, parent = entry["heir"], entry["parent"]
    if settings.is_followed and heir is not None:
        reason = f"{heir} inherits from it, and its changes are told under that name; "
        remedy = "end that, or leave refresh.listen and refresh.changelog out"
        raise _unavailable(settings, reason + remedy)
    if settings.has_triggers and parent is not None:
        reason = f"it inherits from {parent}, and statements on that do not run its triggers; "
        remedy = "end that, or take refresh.changelog for refresh.listen"
        raise _unavailable(settings, reason + remedy)


def _refuse_unreadable(
    settings: PostgresSettings, columns: Mapping[str, CatalogRow], names: Sequence[str]
) -> None:
    for name in names:
        if name not in columns:
            raise _unavailable(settings, f"no column {name}{nearest_name(name, list(columns))}")
        if not columns[name]["may_be_read"]:
            detail = f"{settings.table}: the role of the DSN may not read column {name}"
            raise BackendError(ErrorCode.FORBIDDEN, detail)


def _readable(columns: Mapping[str, CatalogRow], numbers: Sequence[int]) -> tuple[str, ...]:
    """The names of the columns, if the role may read all of them: else it cannot order by them."""
    by_number = {column["number"]: column for column in columns.values()}
    found = [by_number[number] for number in numbers]
    are_readable = all(column["may_be_read"] for column in found)
    return tuple(column["name"] for column in found) if are_readable else ()


def _sending(settings: PostgresSettings, column: CatalogRow) -> KeySending:
    sending = key_sending(column["name"], postgres_type(column))
    if isinstance(sending, str):
        raise _unavailable(settings, f"key column {column['name']}: {sending}")
    return sending


def _unavailable(settings: PostgresSettings, reason: str) -> BackendError:
    return BackendError(ErrorCode.TABLE_UNAVAILABLE, f"{settings.table}: {reason}")
