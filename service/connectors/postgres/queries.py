"""Queries of a table: lookups by keys, pages of a load, and their arguments."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from pyarrow import types

from lookup_core.dimension.dimension_events import MAX_QUERY_ROWS_BYTES
from lookup_core.row_bytes import LISTED_ROW_BYTES
from service.connectors.postgres.column_types import (
    ColumnReading,
    output_of,
    quoted,
)
from service.connectors.postgres.sessions import PARTS, guard
from service.connectors.postgres.table import PostgresTable, RelationKind

# Why the values of a row are left out: two bits behind the low half of its ordinal. Above them is
# the number of the largest column of a row that is too large; 0: unknown.
TOO_LARGE, DEFERRED, COLUMN = 1, 2, 34
# Rows may be larger than the former ones, which size the batch.
REPLY_BYTES = MAX_QUERY_ROWS_BYTES * 5 // 4
COMPOSITE_FACTOR = 8  # bytes of arrays and structs count so often: they are decoded slowly
# Relations whose columns may be computed: their sizes would cost another computation.
COMPUTED = {RelationKind.VIEW, RelationKind.QUERY, RelationKind.FOREIGN_TABLE}

Bound: TypeAlias = tuple[str, ...]  # the value of each range column, as text


@dataclass(frozen=True, slots=True)
class RangeColumn:
    """A column that divides rows into ranges: of the key, or the physical position."""

    name: str
    expression: str  # in SQL, for a row `t`
    sql_type: str  # bounds are sent as texts, and cast to it


CTID = RangeColumn("ctid", "t.ctid", "tid")


def lookup_query(table: PostgresTable) -> str:
    """Index lookup of an array per key column; returns ordinals from 1, and columns.

    The database compares keys, with its own equality. OFFSET 0 prevents a join: whatever its
    estimates are, the planner uses the index once per key, and never scans the table. Several rows
    of a key have the table's order; if one is expected, two show that it is ambiguous. For LIMIT 2
    the planner would prefer a scan of a table with many rows per key.
    """
    order = f" ORDER BY {', '.join(table.order)}" if table.has_several_rows else ""
    end = "OFFSET 0" if table.has_several_rows or table.is_unique else "LIMIT (SELECT 2)"
    return _guarded(
        table,
        f"SELECT k.ordinal, r.* FROM {_keys(table)}"  # noqa: S608  names come from the catalog, quoted
        f" CROSS JOIN LATERAL (SELECT {columns_sql(table)} FROM {_ordered_rows(table)}"
        f" WHERE {_matches(table)}{order} {end}) AS r",
    )


def scanning_query(table: PostgresTable, *, sends_keys: bool = False) -> str:
    """The lookup in a table without an index: one scan for all keys.

    With `sends_keys`, the condition on the keys is also one that a foreign server can evaluate,
    with its own index: it receives the arrays as parameters.
    """
    terms = ", ".join(("k.ordinal", *(table.order if table.has_several_rows else ())))
    order = "" if table.is_unique and not table.has_several_rows else f" ORDER BY {terms}"
    among = _is_among(table) if sends_keys else ""
    return _guarded(
        table,
        f"SELECT k.ordinal, {columns_sql(table)} FROM {_keys(table)}"  # noqa: S608  as above
        f" JOIN {_ordered_rows(table)} ON {_matches(table)}{among}{order}",
    )


def trial_query(table: PostgresTable) -> str | None:
    """A query of one row, which fails in a read-only transaction if the SQL of the relation writes.

    None if the relation has no such SQL. The server drops unused columns, unless they are volatile.
    """
    if not table.has_sql:
        return None
    keys = (f"t.{quoted(name)}" for name, _ in table.keys)
    rows = f"SELECT {', '.join(keys)}, {columns_sql(table)} FROM {table.from_item()} LIMIT 1"  # noqa: S608  as above
    return f"SELECT pg_catalog.count(*) FROM ({rows}) AS one"  # noqa: S608  as above


def blocks_query(table: PostgresTable, query: str, *, page: str | None = None) -> str:
    """The result of a lookup query, in the same order, as one row of byte blocks.

    The ordinals and each column are a block; all are NULL without rows. A block is a binary array;
    for values of variable length, an array of lengths with the values behind it. OFFSET 0 keeps
    the planner from computing these values twice. With the column `page`, there is a row of blocks
    for each of its values.
    """
    values, blocks = ["q.ordinal"], ["pg_catalog.array_send(pg_catalog.array_agg(b.ordinal))"]
    for number, (_, reading) in enumerate(table.columns, 1):
        name = f"column{number}"
        if reading.to_bytes is None:
            values.append(f"COALESCE(q.{name}, NULL) AS {name}")  # a domain as its base type
            blocks.append(f"pg_catalog.array_send(pg_catalog.array_agg(b.{name}))")
        else:
            values.append(f"{reading.to_bytes(f'q.{name}')} AS {name}")
            lengths = (
                f"pg_catalog.array_send(pg_catalog.array_agg(pg_catalog.octet_length(b.{name})))"
            )
            blocks.append(f"{lengths} || COALESCE(string_agg(b.{name}, ''), '')")
    if page is not None:
        values.append(f"q.{page}")
    return (
        f"SELECT {', '.join(blocks)} FROM"  # noqa: S608  names come from the catalog
        f" (SELECT {', '.join(values)} FROM ({query}) AS q OFFSET 0) AS b"
        f"{'' if page is None else f' GROUP BY b.{page}'}"
    )


def with_snapshot(
    table: PostgresTable, query: str, *, unknown: Collection[str] = (), is_block: bool = False
) -> str:
    """The result of a lookup query, with the snapshot of the statement and its server.

    They are the last column: behind blocks, or else in one more row, because the snapshot lists
    every transaction in progress. They are `t` on a standby or unknown, else `f`; the start of the
    server; the snapshot. `unknown` are parts of the identity that the server refuses.
    """
    state = "'t'" if "is_standby" in unknown else PARTS["is_standby"].sql
    start = "''" if "started_at" in unknown else PARTS["started_at"].sql
    text = f"pg_catalog.concat({state}, ' ', {start}, ' ', pg_catalog.pg_current_snapshot())"
    if is_block:
        return f"SELECT b.*, {text} FROM ({query}) AS b"  # noqa: S608  as above
    nulls = ", ".join(["NULL"] * (1 + len(table.columns)))
    return f"SELECT {nulls}, {text} UNION ALL SELECT q.*, NULL FROM ({query}) AS q"  # noqa: S608  as above


def _guarded(table: PostgresTable, query: str) -> str:
    """The lookup in a transaction whose settings it fixes before any row is read.

    Behind PgBouncer, sessions have the settings of the role. A transaction around each query would
    cost round trips. The server evaluates the parts of a UNION ALL in their order. A condition of
    the query would be dropped where the planner knows that a policy hides all rows.
    """
    if not table.is_guarded:
        return query
    sql = f"SELECT FROM {table.from_item()} LIMIT 0" if table.has_sql else None
    nulls = ", ".join(f"NULL AS {name}" for name in _names(table))
    first = f"SELECT {nulls} WHERE {guard(table_id=table.origin.table_id, sql=sql)}"
    return f"{first} UNION ALL SELECT q.* FROM ({query} OFFSET 0) AS q"  # noqa: S608  as above


def keys_query(table: PostgresTable) -> str:
    """The number of keys, for servers to read the keys and no row."""
    return f"SELECT count(*) FROM {_keys(table)}"  # noqa: S608  as above


def _ordered_rows(table: PostgresTable) -> str:
    return table.from_item(with_places=table.has_several_rows and not table.primary_key)


def _names(table: PostgresTable) -> list[str]:
    return ["ordinal", *(f"column{number}" for number, _ in enumerate(table.columns, 1))]


def _keys(table: PostgresTable) -> str:
    arrays = ", ".join(
        f"pg_catalog.unnest({sending.array(number)})"
        for number, (_, sending) in enumerate(table.keys, 1)
    )
    aliases = ", ".join(f"key{number}" for number, _ in enumerate(table.keys, 1))
    return f"ROWS FROM ({arrays}) WITH ORDINALITY AS k ({aliases}, ordinal)"


def columns_sql(table: PostgresTable) -> str:
    """The expressions of the columns of rows `t`, named column1 and so on."""
    return ", ".join(
        f"{_value(table, f't.{quoted(name)}', reading)} AS column{number}"
        for number, (name, reading) in enumerate(table.columns, 1)
    )


def _value(table: PostgresTable, name: str, reading: ColumnReading) -> str:
    """The expression of a value; of one that takes eight times `row_bytes`, blanks of that size.

    The server would read and convert all of it, perhaps for longer than the query may take.
    """
    value = reading.expression(name)
    if value == name or not reading.may_be_large or table.kind in COMPUTED:
        return value
    size = f"pg_catalog.pg_column_size({name})"
    blanks = f"pg_catalog.repeat(' ', LEAST({size}, {table.row_bytes + 1}))"
    blanks = f"pg_catalog.textsend({blanks})" if types.is_binary(reading.sent) else blanks
    return f"CASE WHEN {size} > {8 * table.row_bytes} THEN {blanks} ELSE {value} END"


def first_rows(table: PostgresTable, query: str, count: int) -> str:
    """The first rows of each key in the result of a query, where those of a key follow each other.

    The server reads the others, and does not send them.
    """
    columns = ", ".join(f"f.{name}" for name in _names(table))
    return (
        f"SELECT {columns} FROM (SELECT q.*, pg_catalog.lag(q.ordinal, {count}) OVER () AS former"  # noqa: S608  as above
        f" FROM ({query} OFFSET 0) AS q) AS f WHERE f.former IS DISTINCT FROM f.ordinal"
    )


def bounded_page(
    table: PostgresTable, query: str, *, first: int, page_bytes: int | None = None
) -> str:
    """The result of a query, in its order, without the large values of rows that are too large.

    The high half of their ordinals is TOO_LARGE; that of rows beyond REPLY_BYTES, or the bytes of
    one row if these are more, is DEFERRED. The first columns are never left out. With `page_bytes`
    no row is deferred, and the column `page` is the number of the page, each of that many bytes.
    """
    marks = {TOO_LARGE: "b.bytes IS NULL"}
    if page_bytes is not None:
        page = f", COALESCE(b.total, 0) / {page_bytes} AS page"
        return _marked(table, _with_totals(table, query), marks, first=first, more=page)
    if not table.may_have_large_rows:
        return query
    marks[DEFERRED] = f"b.total > {_reply_bytes(table)}"
    return _marked(table, _with_totals(table, query), marks, first=first)


def small_page(table: PostgresTable, query: str) -> str:
    """The result of a query that ends with a condition; no row if `bounded_page` marks any.

    It is quicker, because the bytes of stored values are known before they are read. Those of
    converted ones would be converted twice.
    """
    size, limit = _size(table), _reply_bytes(table)
    total = f"pg_catalog.sum(COALESCE({size}, {limit + 1}))"
    return f"{query} AND (SELECT {total} <= {limit} FROM ({query}) AS q)"  # noqa: S608  as above


def bounded_shares(table: PostgresTable, query: str) -> str:
    """The result of `bounded_reply` for a table with a row per key; it is quicker for small rows.

    A row beyond its key's share of the answer is DEFERRED: with fewer keys, the share is larger.
    """
    assert table.is_unique, "several rows of a key would share"
    if not table.may_have_large_rows:
        return query
    (_, sending), *_ = table.keys
    keys = "$1::text[]" if sending.is_enum else sending.array(1)
    share = f"(SELECT {_reply_bytes(table)} / GREATEST(pg_catalog.cardinality({keys}), 1))"
    marks = {TOO_LARGE: "b.bytes IS NULL", DEFERRED: f"b.bytes > {share}"}
    sized = f"SELECT q.*, {_size(table)} AS bytes FROM ({query} OFFSET 0) AS q OFFSET 0"  # noqa: S608  as above
    return _marked(table, sized, marks)


def bounded_reply(table: PostgresTable, query: str) -> str:
    """The rows of `bounded_page`, but of those beyond only the first one of each key."""
    if not table.may_have_large_rows:
        return query
    limit = _reply_bytes(table)
    is_first = "pg_catalog.lag(q.ordinal) OVER w IS DISTINCT FROM q.ordinal AS is_first"
    totals = _with_totals(table, query, more="" if table.is_unique else f", {is_first}")
    marks = {TOO_LARGE: "b.bytes IS NULL", DEFERRED: f"b.total > {limit}"}
    reply = _marked(table, totals, marks)
    # The rows of a key are next to each other, and b.total is NULL before the first bytes.
    kept = f" WHERE b.is_first OR (b.total - COALESCE(b.bytes, 0) <= {limit}) IS NOT FALSE"
    return reply if table.is_unique else reply + kept


def _reply_bytes(table: PostgresTable) -> int:
    return max(REPLY_BYTES, table.row_bytes)


def _with_totals(table: PostgresTable, query: str, *, more: str = "") -> str:
    """The rows with their bytes, and with the sum of these up to each row."""
    size = _size(table)
    return (
        f"SELECT q.*, {size} AS bytes, pg_catalog.sum({size}) OVER w AS total{more}"  # noqa: S608  as above
        f" FROM ({query} OFFSET 0) AS q WINDOW w AS (ROWS UNBOUNDED PRECEDING)"
    )


def _size(table: PostgresTable) -> str:
    """The bytes of a row `q`; NULL if these are too many.

    `octet_length` does not read a stored value, also if it is compressed. OFFSET 0 keeps the
    planner from computing other values once more.
    """
    large = table.row_bytes + 1
    fixed = sum(each.fixed_bytes for _, each in table.columns if not each.may_be_large)
    fixed += LISTED_ROW_BYTES if table.has_several_rows else 0
    lengths = "".join(
        f" + COALESCE(pg_catalog.octet_length(q.column{number}), 0){_factor(reading)}"
        for number, (_, reading) in enumerate(table.columns, 1)
        if reading.may_be_large
    )
    return f"NULLIF(LEAST({fixed}::int8{lengths}, {large}), {large})::int4"


def _factor(reading: ColumnReading) -> str:
    return f" * {COMPOSITE_FACTOR}::int8" if types.is_nested(reading.type) else ""


def _marked(
    table: PostgresTable, rows: str, marks: Mapping[int, str], *, first: int = 0, more: str = ""
) -> str:
    """The rows `b`, with the marks whose conditions hold, and then without large values."""
    branches = " ".join(
        f"WHEN {condition} THEN {mark << 32}{_largest(table) if mark == TOO_LARGE else ''}"
        for mark, condition in marks.items()
    )
    values = (
        f"CASE WHEN {' OR '.join(marks.values())} THEN NULL ELSE b.column{number} END"
        if reading.may_be_large and number > first
        else f"b.column{number}"
        for number, (_, reading) in enumerate(table.columns, 1)
    )
    columns = ", ".join(f"{value} AS column{number}" for number, value in enumerate(values, 1))
    ordinal = f"b.ordinal + CASE {branches} ELSE 0 END AS ordinal"
    return f"SELECT {ordinal}, {columns}{more} FROM ({rows}) AS b"  # noqa: S608  as above


def _largest(table: PostgresTable) -> str:
    """A term that adds the number of the largest column to a mark; it is evaluated with it only."""
    lengths = {
        number: f"pg_catalog.octet_length(b.column{number}){_factor(reading)}"
        for number, (_, reading) in enumerate(table.columns, 1)
        if reading.may_be_large
    }
    cases = " ".join(f"WHEN {length} THEN {at << COLUMN}" for at, length in lengths.items())
    return f" + CASE GREATEST({', '.join(lengths.values())}) {cases} ELSE 0 END" if cases else ""


def _matches(table: PostgresTable) -> str:
    equalities = [
        f"{sending.column(name)} {sending.equals} k.key{number}"
        for number, (name, sending) in enumerate(table.keys, 1)
    ]
    return " AND ".join([*equalities, *table.conditions])


def _is_among(table: PostgresTable) -> str:
    """A condition on the arrays of keys; a subquery makes each of them a parameter of the scan."""
    return "".join(
        f" AND {sending.column(name)} {sending.equals}"
        f" ANY ((SELECT {sending.array(number)})::{sending.sql_type}[])"
        for number, (name, sending) in enumerate(table.keys, 1)
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
    query = _page_rows(table, columns, _range(columns, first, end))
    if is_small:
        return blocks_query(wide, small_page(wide, query))
    return blocks_query(wide, bounded_page(wide, query, first=len(table.keys)))


def stream_query(table: PostgresTable, *, page_bytes: int) -> str:
    """All rows as blocks, a row of blocks for each `page_bytes`; keys come before columns."""
    wide = with_keys(table)
    pages = bounded_page(wide, _page_rows(table), first=len(table.keys), page_bytes=page_bytes)
    return blocks_query(wide, pages, page="page")


def _page_rows(
    table: PostgresTable, columns: Sequence[RangeColumn] = (), conditions: str = ""
) -> str:
    rows = table.from_item(with_places=CTID in columns)
    # Blocks start with the ordinals of keys; a page has none.
    values = f"1::int8 AS ordinal, {columns_sql(with_keys(table))}"
    return f"SELECT {values} FROM {rows} WHERE {_has_key(table)}{conditions}"  # noqa: S608  as above


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


def key_columns(table: PostgresTable) -> tuple[RangeColumn, ...]:
    """The key's columns; in the primary key's order if it starts with all of them."""
    sendings = dict(table.keys)
    names = [*sendings]
    if set(table.primary_key[: len(names)]) == set(names):
        names = [*table.primary_key[: len(names)]]
    return tuple(
        RangeColumn(name, sendings[name].column(name), sendings[name].sql_type) for name in names
    )


def with_keys(table: PostgresTable) -> PostgresTable:
    """The table with its key's columns before the other columns."""
    keys = tuple((name, sending.reading) for name, sending in table.keys)
    return replace(table, columns=(*keys, *table.columns))


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
