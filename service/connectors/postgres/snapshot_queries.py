"""Snapshot queries: ranges of a table, their pages, and the rows of a page."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from pyarrow import types

from lookup_core.changelog.change_decoder import UNKNOWN_TRANSACTION, RowChanges
from lookup_core.freshness.table_snapshot import TableSnapshot
from lookup_core.keys.key_casts import UUID_FIELD
from lookup_core.sources.splits import Split
from service.connectors.postgres.blocks import rows_of_blocks
from service.connectors.postgres.queries import blocks_query
from service.connectors.postgres.table import (
    ColumnReading,
    KeySending,
    PostgresTable,
    PostgresType,
    column_reading,
    quoted,
)

Bound: TypeAlias = tuple[str, ...]  # the value of each of the columns that ranges are made of


@dataclass(frozen=True, slots=True)
class RangeColumn:
    """What rows are put in ranges by: a column of the key, or where they are stored."""

    expression: str  # in SQL, of a row `t`
    sql_type: str  # which bounds, that are texts, are cast to


CTID = RangeColumn("t.ctid", "tid")


@dataclass(frozen=True, slots=True)
class TablePicture:
    """A table as one snapshot shows it."""

    table: PostgresTable
    range_columns: tuple[RangeColumn, ...]
    snapshot_id: str  # under which other sessions find the snapshot
    snapshot: TableSnapshot


@dataclass(frozen=True, slots=True)
class PostgresSnapshotSplit(Split):
    """Pages of rows: page i has those from bound i on, and below bound i + 1; None: without end.

    Its position is how many rows were read.
    """

    picture: TablePicture
    bounds: Sequence[Bound | None]
    total: int | None  # rows, about
    # {position: the page that follows it}; a position is told only when its page is whole
    page_at: dict[int, int] = field(default_factory=lambda: {0: 0}, compare=False)

    @property
    def page_count(self) -> int:
        """How many pages there are."""
        return len(self.bounds) - 1


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


def postgres_snapshot_rows(blocks: Sequence[bytes | None], table: PostgresTable) -> RowChanges:
    """The rows of a page, but for those whose key no lookup can have (a time beyond year 9999).

    Raises BackendError `schema_changed` when they are not what was described.
    """
    fetched = rows_of_blocks(blocks, with_keys(table), key_count=1)
    columns, schema = fetched.rows.columns, table.schema
    keys = [column.cast(field.type) for column, field in zip(columns, schema.key, strict=False)]
    key = pa.record_batch(keys, schema=schema.key)
    rows = pa.record_batch(columns[len(keys) :], schema=schema.columns)
    is_whole = np.ones(key.num_rows, np.bool_)
    for part in key.columns:
        is_whole &= part.is_valid().to_numpy(zero_copy_only=False)
    if not is_whole.all():
        key, rows = key.filter(pa.array(is_whole)), rows.filter(pa.array(is_whole))
    return RowChanges(
        keys=key,
        has_row=np.ones(key.num_rows, np.bool_),
        is_gone=np.zeros(key.num_rows, np.bool_),
        rows=rows,
        transaction_ids=np.full(key.num_rows, UNKNOWN_TRANSACTION, np.uint32),
    )
