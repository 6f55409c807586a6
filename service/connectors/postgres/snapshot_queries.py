"""Snapshot queries: ranges of a table, their pages, and the rows of a page."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from lookup_core.changelog.change_decoder import RowChanges
from lookup_core.freshness.server_identity import ServerIdentity
from lookup_core.freshness.table_snapshot import TableSnapshot
from lookup_core.keys.typed_keys import UUID_FIELD
from lookup_core.sources.splits import Split
from service.connectors.postgres.blocks import BinaryArray, columns_of_blocks
from service.connectors.postgres.queries import (
    DEFERRED,
    blocks_query,
    bounded_page,
    columns_sql,
    numbered_pages,
    small_page,
)
from service.connectors.postgres.table import (
    AS_TEXT,
    LABEL,
    ColumnReading,
    KeySending,
    PostgresTable,
    PostgresType,
    column_reading,
    output_of,
    quoted,
)

Bound: TypeAlias = tuple[str, ...]  # the value of each range column, as text


@dataclass(frozen=True, slots=True)
class RangeColumn:
    """A column that divides rows into ranges: of the key, or the physical position."""

    expression: str  # in SQL, of a row `t`
    sql_type: str  # of the bounds, which are sent as texts


CTID = RangeColumn("t.ctid", "tid")

# Of $1 and its partitions: bytes with and without long values; bytes of a block; estimated rows.
SIZE = """
WITH RECURSIVE part AS (
    SELECT $1::oid AS oid
    UNION ALL SELECT i.inhrelid FROM part JOIN pg_catalog.pg_inherits i ON i.inhparent = part.oid
)
SELECT pg_catalog.sum(pg_catalog.pg_table_size(c.oid))::int8 AS table_bytes,
       pg_catalog.sum(pg_catalog.pg_relation_size(c.oid))::int8 AS main_bytes,
       pg_catalog.current_setting('block_size')::int AS block_bytes,
       pg_catalog.sum(c.reltuples) FILTER (WHERE c.relkind <> 'p') AS row_count
FROM part JOIN pg_catalog.pg_class c ON c.oid = part.oid
"""


@dataclass(frozen=True, slots=True)
class ExportedSnapshot:
    """A snapshot that other sessions can import, and the table as it shows it."""

    table: PostgresTable
    range_columns: tuple[RangeColumn, ...]
    id: str  # for SET TRANSACTION SNAPSHOT
    visibility: TableSnapshot
    server: ServerIdentity


@dataclass(frozen=True, slots=True)
class PostgresSnapshotSplit(Split):
    """Pages of rows: page i is the range from bound i to bound i + 1, exclusive; None: open.

    Without range columns, it is a stream of pages. Its position counts the rows that were read. A
    page with too many bytes is divided when it is read.
    """

    snapshot: ExportedSnapshot
    bounds: list[Bound | None] = field(compare=False)
    total: int | None  # estimated rows
    # {position: next page}; positions are reported at the ends of pages only
    page_at: dict[int, int] = field(default_factory=lambda: {0: 0}, compare=False)

    @property
    def is_stream(self) -> bool:
        """Whether it is one stream, of an unknown number of pages."""
        return not self.snapshot.range_columns

    @property
    def page_count(self) -> int:
        """The number of pages of ranges."""
        return len(self.bounds) - 1


_UUID = ColumnReading(
    pa.binary(), to_bytes=lambda value: f"pg_catalog.uuid_send({value})", is_short=True
)


def postgres_snapshot_query(
    table: PostgresTable,
    columns: Sequence[RangeColumn],
    *,
    first: Bound | None,
    end: Bound | None,
    is_small: bool = False,
) -> str:
    """The rows from one bound to the other, exclusive, as blocks; keys come before columns.

    Only those that fit into an answer have their values: see `surplus_ranges`. With `is_small`,
    there is no row unless all fit.
    """
    wide = with_keys(table)
    rows = table.from_item(with_places=CTID in columns)
    # Blocks start with the ordinals of keys; a page has none.
    query = (
        f"SELECT 1::int8 AS ordinal, {columns_sql(wide)} FROM {rows}"  # noqa: S608  names come from the catalog, quoted
        f" WHERE {_has_key(table)}{_range(columns, first, end)}"
    )
    if is_small:
        return blocks_query(wide, small_page(wide, query))
    return blocks_query(wide, bounded_page(wide, query, first=len(table.keys)))


def stream_query(table: PostgresTable, *, page_bytes: int) -> str:
    """All rows as blocks, a row of blocks for each `page_bytes`; keys come before columns."""
    wide = with_keys(table)
    rows = (
        f"SELECT 1::int8 AS ordinal, {columns_sql(wide)} FROM {table.from_item()}"  # noqa: S608  as above
        f" WHERE {_has_key(table)}"
    )
    pages = numbered_pages(wide, rows, first=len(table.keys), page_bytes=page_bytes)
    return blocks_query(wide, pages, page="page")


def bounds_query(
    table: PostgresTable,
    columns: Sequence[RangeColumn],
    *,
    percent: float | None = None,
    first: Bound | None = None,
    end: Bound | None = None,
) -> str:
    """The bounds between $1 ranges of about equally many rows, of all or of a sample of blocks.

    Further arguments are the bounds of the rows that are divided.
    """
    names = [f"value{number}" for number, _ in enumerate(columns, 1)]
    values = [f"{column.expression} AS {name}" for column, name in zip(columns, names, strict=True)]
    order = ", ".join(column.expression for column in columns)
    texts = ", ".join(output_of(f"s.{name}") for name in names)
    sample = "" if percent is None else f" TABLESAMPLE SYSTEM ({percent})"
    return (
        f"SELECT {texts} FROM (SELECT {', '.join(values)},"  # noqa: S608  as above
        f" row_number() OVER (ORDER BY {order}) * $1::int8 AS share, count(*) OVER () AS total"
        f" FROM {table.from_item(sample=sample, with_places=CTID in columns)}"
        f" WHERE {_has_key(table)}{_range(columns, first, end, number=2)}) AS s"
        " WHERE share / total <> (share - $1::int8) / total AND share / total < $1::int8"
        " ORDER BY share"
    )


def some_bound_query(table: PostgresTable, columns: Sequence[RangeColumn]) -> str:
    """The bound of one row of the table, if there is any."""
    texts = ", ".join(output_of(column.expression) for column in columns)
    return f"SELECT {texts} FROM {table.from_item()} WHERE {_has_key(table)} LIMIT 1"  # noqa: S608  as above


def key_columns(table: PostgresTable) -> tuple[RangeColumn, ...]:
    """The key's columns; in the primary key's order if it starts with all of them."""
    sendings = dict(table.keys)
    names = [*sendings]
    if set(table.primary_key[: len(names)]) == set(names):
        names = [*table.primary_key[: len(names)]]
    return tuple(
        RangeColumn(sendings[name].column(name), sendings[name].sql_type) for name in names
    )


def with_keys(table: PostgresTable) -> PostgresTable:
    """The table with its key's columns before the other columns."""
    keys = tuple((name, _key_reading(sending)) for name, sending in table.keys)
    return replace(table, columns=(*keys, *table.columns))


def _key_reading(sending: KeySending) -> ColumnReading:
    if sending.field.metadata == UUID_FIELD:
        return _UUID
    if types.is_string(sending.field.type):
        return LABEL if sending.is_enum else AS_TEXT  # char(n) has no trailing blanks then
    kind, modifier = sending.field.type, -1
    if types.is_decimal(kind):
        modifier = (kind.precision << 16 | kind.scale) + 4  # as in the catalog
    return column_reading(PostgresType(sending.sql_type, is_builtin=True, modifier=modifier))


def _has_key(table: PostgresTable) -> str:
    return " AND ".join(f"t.{quoted(name)} IS NOT NULL" for name, _ in table.keys)


def _range(
    columns: Sequence[RangeColumn], first: Bound | None, end: Bound | None, *, number: int = 1
) -> str:
    row, conditions = ", ".join(column.expression for column in columns), ""
    for comparison, bound in ((">=", first), ("<", end)):
        if bound is not None:
            numbered = enumerate(columns, number)
            values = ", ".join(f"${at}::text::{column.sql_type}" for at, column in numbered)
            conditions += f" AND ({row}) {comparison} ({values})"
            number += len(columns)
    return conditions


def is_quickly_sized(table: PostgresTable) -> bool:
    """Whether rows may be large, and their bytes are known before they are read."""
    are_stored = not any(
        reading.may_be_large and reading.expression("") for _, reading in table.columns
    )
    return are_stored and table.has_row_places and with_keys(table).may_have_large_rows


def surplus_ranges(blocks: Sequence[bytes | None]) -> int:
    """The number of ranges that have the rows of a page which are too many for one; 0: it fits."""
    if blocks[0] is None:
        return 0
    marks = _marks(blocks[0])
    surplus = int((marks == DEFERRED).sum())
    # Twice as many as rows of the same size need.
    return surplus and 2 * -(-len(marks) // max(len(marks) - surplus, 1))


def _marks(ordinals: bytes) -> npt.NDArray[np.int64]:
    return BinaryArray.read(ordinals, np.int64).values >> 32 & 3


def postgres_snapshot_rows(blocks: Sequence[bytes | None], table: PostgresTable) -> RowChanges:
    """The rows of a page, without keys beyond the years 1 to 9999: no lookup can have them.

    A row that is too large, or with a value that does not fit, is reported without its values.
    Raises BackendError `schema_changed` if the rows do not fit the described table.
    """
    ordinals, *sent = blocks
    schema = table.schema
    if ordinals is None:  # aggregates of no rows
        none = [pa.RecordBatch.from_pylist([], each) for each in (schema.key, schema.columns)]
        return RowChanges.loaded(*none)
    read = columns_of_blocks(sent, with_keys(table).columns)
    keys = [column.values.cast(field.type) for column, field in zip(read, schema.key, strict=False)]
    has_row = _marks(ordinals) == 0
    for column in read:
        has_row[column.unfit] = False
    return RowChanges.loaded(
        pa.record_batch(keys, schema=schema.key),
        pa.record_batch([column.values for column in read[len(keys) :]], schema=schema.columns),
        has_row,
    )
