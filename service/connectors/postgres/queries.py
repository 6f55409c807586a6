"""Lookup queries of a table, their key arguments, and the index check."""

import json
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lookup_core.keys.key_casts import UUID_FIELD
from service.connectors.postgres.table import ColumnReading, PostgresTable, quoted

# Whether the server is a standby, t or f, and the snapshot of the statement: see `postgres_seen`.
_SEEN = "pg_catalog.concat(pg_catalog.pg_is_in_recovery(), ' ', pg_catalog.pg_current_snapshot())"


def lookup_query(table: PostgresTable, *, is_ordered: bool) -> str:
    """One array per key column in; out come ordinal (from 1) and columns of rows that exist.

    The database matches, so that it alone decides what is equal. OFFSET 0 keeps the planner from
    turning this into a join: whatever it believes of the number of keys or of the table's size, it
    asks the index once per key and never reads the table from end to end. The rows of one key come
    in the table's order, if they are to be ordered.
    """
    order = f" ORDER BY {', '.join(table.order)}" if is_ordered else ""
    return (
        "SELECT k.ordinal, r.*"  # noqa: S608  names come from the catalog, quoted
        f" FROM {_keys(table)}"
        f" CROSS JOIN LATERAL (SELECT {_columns(table)}"
        f" FROM {_name(table)} AS t"
        f" WHERE {_matches(table)}{order} OFFSET 0) AS r"
    )


def scanning_query(table: PostgresTable, *, is_ordered: bool) -> str:
    """The same for a table without an index: read once for all keys, not once for each."""
    order = f" ORDER BY {', '.join(('k.ordinal', *table.order))}" if is_ordered else ""
    return (
        f"SELECT k.ordinal, {_columns(table)}"  # noqa: S608  names come from the catalog, quoted
        f" FROM {_keys(table)}"
        f" JOIN {_name(table)} AS t ON {_matches(table)}{order}"
    )


def blocks_query(table: PostgresTable, query: str) -> str:
    """What one of the others finds, in the same order, as a single row of blocks of bytes.

    The ordinals are a block, and each column is one; all are NULL if there are no rows. A block is
    an array; where values have any length it is one of lengths, and they stand behind it. OFFSET 0
    keeps the planner from making the bytes of such a value twice.
    """
    numbered = [
        (f"column{number}", reading) for number, (_, reading) in enumerate(table.columns, 1)
    ]
    values = ", ".join(["q.ordinal", *(f"{_value(*each)} AS {each[0]}" for each in numbered)])
    blocks = ", ".join(["array_send(array_agg(b.ordinal))", *(_block(*each) for each in numbered)])
    return f"SELECT {blocks} FROM (SELECT {values} FROM ({query}) AS q OFFSET 0) AS b"  # noqa: S608  names come from the catalog


def query_with_snapshot(table: PostgresTable, query: str) -> str:
    """What one of the first two finds, and one row more that says what the statement sees.

    That row has NULL for all but the last column, which only it has. Not a column of every row: the
    text has a word for each transaction in progress.
    """
    nulls = ", ".join(["NULL"] * (1 + len(table.columns)))
    return f"SELECT {nulls}, {_SEEN} UNION ALL SELECT q.*, NULL FROM ({query}) AS q"  # noqa: S608  as above


def blocks_query_with_snapshot(table: PostgresTable, query: str) -> str:
    """The same as blocks, with what the statement sees behind them."""
    return f"SELECT b.*, {_SEEN} FROM ({blocks_query(table, query)}) AS b"  # noqa: S608  as above


def uses_index(plan: str) -> bool:
    """Whether a plan, as EXPLAIN gives it in JSON, finds the rows by a condition on an index.

    Of a table in parts, each part needs its index. An index on some of the key's columns is enough:
    which of them tell rows apart, only the table's owner knows.
    """
    return any(_has_condition(each["Plan"]) for each in json.loads(plan))


def index_statement(table: PostgresTable) -> str:
    """What creates the index that lookups need."""
    key = ", ".join(quoted(name) for name, _ in table.keys)
    return f"CREATE INDEX CONCURRENTLY ON {_name(table)} ({key})"


def _has_condition(node: dict[str, Any]) -> bool:
    found = [_has_condition(child) for child in node.get("Plans", ())]
    is_in_parts = node["Node Type"] in {"Append", "Merge Append"}
    return "Index Cond" in node or (all(found) if found and is_in_parts else any(found))


def _keys(table: PostgresTable) -> str:
    arrays = ", ".join(sending.array(number) for number, (_, sending) in enumerate(table.keys, 1))
    aliases = ", ".join(f"key{number}" for number, _ in enumerate(table.keys, 1))
    return f"unnest({arrays}) WITH ORDINALITY AS k ({aliases}, ordinal)"


def _columns(table: PostgresTable) -> str:
    return ", ".join(
        f"{reading.expression(f't.{quoted(name)}')} AS column{number}"
        for number, (name, reading) in enumerate(table.columns, 1)
    )


def _value(name: str, reading: ColumnReading) -> str:
    if reading.to_bytes is None:
        return f"COALESCE(q.{name}, NULL)"  # which is of the type that a domain is made of
    return reading.to_bytes(f"q.{name}")


def _block(name: str, reading: ColumnReading) -> str:
    if reading.to_bytes is None:
        return f"array_send(array_agg(b.{name}))"
    lengths = f"array_send(array_agg(octet_length(b.{name})))"
    return f"{lengths} || COALESCE(string_agg(b.{name}, ''), '')"


def _matches(table: PostgresTable) -> str:
    is_asked = [
        f"t.{quoted(name)} = k.key{number}" for number, (name, _) in enumerate(table.keys, 1)
    ]
    return " AND ".join([*is_asked, *table.conditions])


def _name(table: PostgresTable) -> str:
    return f"{quoted(table.schema_name)}.{quoted(table.name)}"


# Years 1 to 9999, like the columns: beyond, ISO 8601 needs signs and more digits.
_DAYS = (-719_162, 2_932_896)
_MICROSECONDS = (-62_135_596_800_000_000, 253_402_300_799_999_999)


def key_order(keys: pa.RecordBatch) -> npt.NDArray[np.int32]:
    """Where the keys stand that ascend: as in an index, so that neighbours share its pages.

    A text's order may be another one in the index; near is near all the same.
    """
    by_all = [(name, "ascending") for name in keys.schema.names]
    return pc.sort_indices(keys, sort_keys=by_all).to_numpy().astype(np.int32)


def key_arguments(keys: pa.RecordBatch, described: pa.Schema) -> list[Any]:
    """What each key column is sent as: a list, or for integers, which are never null, a text.

    A time that cannot be written becomes NULL: no row.
    """
    return [_argument(column, field) for column, field in zip(keys.columns, described, strict=True)]


def _argument(column: pa.Array, field: pa.Field) -> list[Any] | str:
    if types.is_date32(field.type):
        column = _within(column, pa.int32(), _DAYS).cast(pa.utf8())
    if types.is_timestamp(field.type):
        utc = _within(column, pa.int64(), _MICROSECONDS).cast(pa.timestamp("us")).cast(pa.utf8())
        column = utc if field.type.tz is None else pc.binary_join_element_wise(utc, "Z", "")
    values: list[Any] = column.to_pylist()
    if types.is_integer(field.type):
        return f"{{{str(values)[1:-1]}}}"
    if field.metadata == UUID_FIELD:
        return [None if value is None else UUID(bytes=value) for value in values]
    return values


def _within(column: pa.Array, number: pa.DataType, limits: tuple[int, int]) -> pa.Array:
    numbers = column.cast(number)
    low, high = (pa.scalar(limit, number) for limit in limits)
    fits = pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high))
    within: pa.Array = pc.if_else(fits, column, pa.scalar(None, column.type))
    return within
