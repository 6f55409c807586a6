"""The queries that find the pages of a table, and read one.

Text only; values go as parameters, which are texts that are cast to exact types, so that an index
is used.
"""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from pyarrow import types

from lookup_core.keys.key_casts import UUID_FIELD
from service.backends.postgres_lookup import blocks_query
from service.backends.postgres_table import PostgresTable, quoted
from service.backends.postgres_types import (
    ColumnReading,
    KeySending,
    PostgresType,
    column_reading,
)
from service.sources.postgres_snapshot_split import Bound, RangeColumn

_UUID = ColumnReading(pa.binary(), lambda name: name, lambda value: f"uuid_send({value})")
_ORDINAL = "1::int8"  # blocks have a column that tells which key a row is of; here there is none


def postgres_snapshot_query(
    table: PostgresTable,
    columns: Sequence[RangeColumn],
    *,
    first: Bound | None,
    end: Bound | None,
) -> str:
    """The rows from one bound on and below the other, as blocks: see `with_keys`."""
    wide = with_keys(table)
    values = [f"{_ORDINAL} AS ordinal"]
    for number, (name, reading) in enumerate(wide.columns, 1):
        values.append(f"{reading.expression(f't.{quoted(name)}')} AS column{number}")
    query = f"SELECT {', '.join(values)} FROM {_name(table)} AS t WHERE {_has_key(table)}"  # noqa: S608  names come from the catalog, quoted
    query += _range(columns, first, end)
    return blocks_query(wide, query)


def bounds_query(table: PostgresTable, columns: Sequence[RangeColumn], *, percent: float) -> str:
    """The bounds between so many ($1) ranges of about as many rows each, by a sample of blocks."""
    names = [f"value{number}" for number, _ in enumerate(columns, 1)]
    values = [f"{column.expression} AS {name}" for column, name in zip(columns, names, strict=True)]
    order = ", ".join(column.expression for column in columns)
    texts = ", ".join(f"s.{name}::text" for name in names)
    return (
        f"SELECT {texts} FROM (SELECT {', '.join(values)},"  # noqa: S608  as above
        f" row_number() OVER (ORDER BY {order}) * $1::int8 AS share, count(*) OVER () AS total"
        f" FROM {_name(table)} AS t TABLESAMPLE SYSTEM ({percent})"
        f" WHERE {_has_key(table)}) AS s"
        " WHERE share / total <> (share - $1::int8) / total AND share / total < $1::int8"
        " ORDER BY share"
    )


def some_bound_query(table: PostgresTable, columns: Sequence[RangeColumn]) -> str:
    """The bound that some row of the table would be, if there is any."""
    texts = ", ".join(f"{column.expression}::text" for column in columns)
    return f"SELECT {texts} FROM {_name(table)} AS t WHERE {_has_key(table)} LIMIT 1"  # noqa: S608  as above


def size_query(table: PostgresTable) -> str:
    """What the table holds: bytes in all, bytes without long values, of a block, rows (about)."""
    literal = _name(table).replace("'", "''")
    return (
        "SELECT pg_catalog.pg_table_size(c.oid) AS table_bytes,"  # noqa: S608  as above
        " pg_catalog.pg_relation_size(c.oid) AS main_bytes,"
        " pg_catalog.current_setting('block_size')::int AS block_bytes, c.reltuples AS row_count"
        f" FROM pg_catalog.pg_class c WHERE c.oid = '{literal}'::regclass"
    )


def key_columns(table: PostgresTable) -> tuple[RangeColumn, ...]:
    """The key's columns, in the order of an index that has all of them, as far as it is known."""
    sql_types = {name: sending.sql_type for name, sending in table.keys}
    names = [*sql_types]
    if set(table.primary_key[: len(names)]) == set(names):
        names = [*table.primary_key[: len(names)]]
    return tuple(RangeColumn(f"t.{quoted(name)}", sql_types[name]) for name in names)


def with_keys(table: PostgresTable) -> PostgresTable:
    """The table as it is read: the key's columns stand before the others."""
    keys = tuple((name, _key_reading(sending)) for name, sending in table.keys)
    return replace(table, columns=(*keys, *table.columns))


def _key_reading(sending: KeySending) -> ColumnReading:
    if sending.field.metadata == UUID_FIELD:
        return _UUID
    kind, modifier = sending.field.type, -1
    if types.is_decimal(kind):
        modifier = (kind.precision << 16 | kind.scale) + 4  # as the catalog has it
    return column_reading(PostgresType(sending.sql_type, is_builtin=True, modifier=modifier))


def _has_key(table: PostgresTable) -> str:
    return " AND ".join(f"t.{quoted(name)} IS NOT NULL" for name, _ in table.keys)


def _range(columns: Sequence[RangeColumn], first: Bound | None, end: Bound | None) -> str:
    row = ", ".join(column.expression for column in columns)
    number, conditions = 1, ""
    for comparison, bound in ((">=", first), ("<", end)):
        if bound is not None:
            numbered = enumerate(columns, number)
            values = ", ".join(f"${at}::text::{column.sql_type}" for at, column in numbered)
            conditions += f" AND ({row}) {comparison} ({values})"
            number += len(columns)
    return conditions


def _name(table: PostgresTable) -> str:
    return f"{quoted(table.schema_name)}.{quoted(table.name)}"
