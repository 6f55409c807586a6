"""Rows as a server sends them: records, blocks of arrays, and pages of a snapshot."""

import datetime as dt
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lookup_core.dimension.dimension_events import FetchedRows
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.freshness.table_snapshot import TableSnapshot
from lookup_core.row_bytes import LISTED_ROW_BYTES
from lookup_core.type_texts import parsed_type
from service.connectors.postgres.column_types import PostgresType, requested_reading
from service.connectors.postgres.column_values import BinaryArray, element_oid
from service.connectors.postgres.rows import postgres_snapshot_rows, rows_of_blocks, rows_of_records
from service.connectors.postgres.table import PostgresTable
from tests.service.connectors.postgres.described_tables import (
    PRICES,
    builtin,
    numeric,
    sent_array,
    sent_bytes,
    table_of,
)

TABLE = table_of(builtin("text"), builtin("int4"))
COLUMNS = TABLE.schema.columns
FORMATS = {"b": np.int8, "h": np.int16, "i": np.int32, "q": np.int64}
LAST_INSTANT = dt.datetime(9999, 12, 31, 23, 59, 59, 999999, dt.UTC)
FIRST, SECOND = b"0123456789abcdef", b"fedcba9876543210"
ReadRows = Callable[..., FetchedRows]


def of_records(
    rows: Sequence[tuple[Any, ...]], table: PostgresTable = TABLE, *, seen: str | None = None
) -> FetchedRows:
    """Rows that are sent as records, for three keys; the snapshot is the first record."""
    records = [*rows]
    if seen is not None:
        records = [(None,) * (1 + len(table.columns)) + (seen,), *((*row, None) for row in rows)]
    return rows_of_records(records, table, key_count=3, has_snapshot=seen is not None)


def of_blocks(
    rows: Sequence[tuple[Any, ...]], table: PostgresTable = TABLE, *, seen: str | None = None
) -> FetchedRows:
    """Rows that are sent as blocks, for three keys; the snapshot is the last block."""
    ordinals, *columns = zip(*rows, strict=True) if rows else ((),)
    blocks: list[Any] = [None] * (1 + len(table.columns))
    if rows:
        blocks = [sent_array(ordinals, "q", oid=20)]
        blocks += [
            sent_bytes([None if each is None else str(each).encode() for each in column])
            if reading.to_bytes
            else sent_array(column, "i", oid=23)
            for column, (_, reading) in zip(columns, table.columns, strict=False)
        ]
    blocks += [seen] if seen is not None else []
    return rows_of_blocks(blocks, table, key_count=3, has_snapshot=seen is not None)


def plain(snapshot: TableSnapshot | None) -> tuple[int, int, list[int], bool] | None:
    """The parts of a snapshot."""
    if snapshot is None:
        return None
    in_progress = snapshot.in_progress.tolist()
    return snapshot.xmin, snapshot.xmax, in_progress, snapshot.is_of_standby


def fault_of(read: Callable[[], object]) -> BackendError:
    """The error that reading raises."""
    with pytest.raises(BackendError) as caught:
        read()
    return caught.value


def codes(fetched: FetchedRows) -> dict[int, ErrorCode]:
    """The error of each key that has one."""
    return {key: each.code for each in fetched.unfit for key in each.ordinals.tolist()}


@pytest.mark.parametrize("read", [of_records, of_blocks])
@pytest.mark.parametrize("seen", [None, "f 5 7:9:7", "t  7:9:"])
def test_rows_become_columns(read: ReadRows, seen: str | None) -> None:
    """Ordinals count from 1 in SQL and from 0 here; the snapshot is not one of the rows."""
    found = read([(3, "ä", 1), (1, None, 2), (3, "", 3)], seen=seen)
    none = read([], seen=seen)

    assert (found.ordinals.tolist(), str(found.ordinals.dtype)) == ([2, 0, 2], "int32")
    columns = [["ä", None, ""], pa.array([1, 2, 3], pa.int32())]
    assert found.rows == pa.record_batch(columns, schema=COLUMNS)
    assert (none.ordinals.tolist(), none.rows.schema) == ([], COLUMNS)
    expected = seen and (7, 9, [7] if seen.startswith("f") else [], seen.startswith("t"))
    assert [plain(each.snapshot) for each in (found, none)] == [expected] * 2
    starts = [each.server.identity.started_at for each in (found, none)]
    assert starts == [5 if seen and seen.startswith("f") else None] * 2


def test_snapshot_may_be_any_record() -> None:
    """The record with the snapshot may be sent in any place."""
    records = [(1, "a", 1, None), (None, None, None, "f 5 10:20:10,15"), (2, "b", 2, None)]

    found = rows_of_records(records, TABLE, key_count=2, has_snapshot=True)

    assert (found.ordinals.tolist(), found.rows["c0"].to_pylist()) == ([0, 1], ["a", "b"])
    assert plain(found.snapshot) == (10, 20, [10, 15], False)


@pytest.mark.parametrize("read", [of_records, of_blocks])
def test_null_columns_have_their_type(read: ReadRows) -> None:
    """A column of nulls has the described type."""
    found = read([(1, None, None), (2, None, None)])

    assert found.rows == pa.record_batch(
        [pa.nulls(2, pa.utf8()), pa.nulls(2, pa.int32())], schema=COLUMNS
    )


@pytest.mark.parametrize("read", [of_records, of_blocks])
def test_unfit_rows_name_their_column(read: ReadRows) -> None:
    """Rows with a value beyond its type are left out; their keys and the remedy are known."""
    wanted = requested_reading(builtin("numeric"), parsed_type("decimal(5,2)"))
    assert not isinstance(wanted, str)
    table = replace(TABLE, columns=(("c0", wanted), TABLE.columns[1]))
    rows = [(3, "12345.6", 1), (1, "1.5", 2), (3, "2.5", 3), (2, None, 4)]

    found = read(rows, table)

    assert (found.ordinals.tolist(), found.rows["c1"].to_pylist()) == ([0, 2, 1], [2, 3, 4])
    (unfit,) = found.unfit
    assert (unfit.code, unfit.ordinals.tolist()) == (ErrorCode.VALUE_REJECTED, [2])
    remedy = "types: {c0: string} reads the column as text"
    assert unfit.detail == f"column c0: a value does not fit decimal(5,2); {remedy}"


# Of ordinals: the row is too large, most in the first column, or beyond the answer.
LARGE, BEYOND = (1 << 34) + (1 << 32), 2 << 32


@pytest.mark.parametrize("read", [of_records, of_blocks])
def test_marked_rows_are_left_out(read: ReadRows) -> None:
    """The keys of rows that were not sent are too large, deferred or ambiguous."""
    large = read([(1, "a", 1), (LARGE + 2, None, 1), (BEYOND + 3, None, 1)])
    twice = read([(2, "a", 1), (BEYOND + 2, None, 1), (BEYOND + 1, None, 1)])

    assert (large.rows.to_pylist(), large.ordinals.tolist()) == ([{"c0": "a", "c1": 1}], [0])
    assert (codes(large), large.deferred.tolist()) == ({1: ErrorCode.ROW_TOO_LARGE}, [2])
    assert large.unfit[0].detail == (
        "the row of a key, or its rows together, exceed limits.row_bytes (8 MiB), most in c0; "
        "raise it, or leave large columns out of `columns`"
    )
    assert (codes(twice), twice.deferred.tolist()) == ({1: ErrorCode.AMBIGUOUS}, [0])


@pytest.mark.parametrize("read", [of_records, of_blocks])
def test_several_rows_count_together(read: ReadRows) -> None:
    """With several rows per key, their sum is limited, as for a key that exceeds an answer."""
    several = replace(TABLE, has_several_rows=True, row_bytes=17 + 2 * LISTED_ROW_BYTES)
    sums = [(1, "abcde", 1), (1, "abcd", 1), (2, "abcde", 1), (2, "abcde", 1)]

    within = read(sums[:2], several)
    beyond = read([*sums, (BEYOND + 3, None, 1)], several)
    alone = read([(3, "a", 1), (BEYOND + 3, None, 1), (BEYOND + 1, None, 1)], several)

    assert (codes(within), within.ordinals.tolist()) == ({}, [0, 0])
    assert (codes(beyond), beyond.deferred.tolist()) == ({1: ErrorCode.ROW_TOO_LARGE}, [2])
    assert (codes(alone), alone.deferred.tolist()) == ({2: ErrorCode.ROW_TOO_LARGE}, [0])
    assert "most in c0; raise it" in alone.unfit[0].detail


@pytest.mark.parametrize(
    ("read", "rows"),
    [
        *((read, [(at, "a", 1)]) for read in (of_records, of_blocks) for at in (0, 4)),
        (of_records, [(1, "a")]),
        (of_records, [(1, "a", 1, 1)]),
    ],
)
def test_unrequested_rows_are_refused(read: ReadRows, rows: list[tuple[Any, ...]]) -> None:
    """Rows of other keys or columns, and blocks of other lengths, are an internal error."""
    unequal = [sent_array([1, 2], "q", oid=20), sent_array([7], "i", oid=23)]
    table = table_of(builtin("int4"))

    assert fault_of(lambda: read(rows)).code is ErrorCode.INTERNAL
    fault = fault_of(lambda: rows_of_blocks(unequal, table, key_count=3))
    assert fault.code is ErrorCode.INTERNAL


@pytest.mark.parametrize("value", ["text", 2**31, 1.5, True, Decimal(1)])
def test_other_records_mean_a_change(value: object) -> None:
    """A value that does not fit the described column means that the table changed."""
    fault = fault_of(lambda: of_records([(1, "a", value)]))

    assert fault.code is ErrorCode.SCHEMA_CHANGED
    assert fault.detail == "column c1 is no longer int32"


def test_zone_belongs_to_the_type() -> None:
    """A timestamp with a zone is not read as one without."""
    table = table_of(builtin("timestamp"))
    ordinal, instant = sent_array([1], "q", oid=20), sent_array([0], "q", oid=1184)

    faults = [
        fault_of(lambda: rows_of_records([(1, LAST_INSTANT)], table, key_count=1)),
        fault_of(lambda: rows_of_blocks([ordinal, instant], table, key_count=1)),
    ]

    assert [fault.code for fault in faults] == [ErrorCode.SCHEMA_CHANGED] * 2


def column_of(block: bytes, kind: PostgresType, rows: int = 1) -> pa.Array:
    """A column that is sent as one block."""
    blocks = [sent_array(range(1, rows + 1), "q", oid=20), block]
    return rows_of_blocks(blocks, table_of(kind), key_count=rows).rows.column(0)


@pytest.mark.parametrize(
    ("block", "kind", "code"),
    [
        (sent_array([2**31], "q", oid=20), builtin("int4"), ErrorCode.SCHEMA_CHANGED),
        *(
            (sent_array([1], "i", oid=oid), builtin("int4"), ErrorCode.SCHEMA_CHANGED)
            for oid in (16, 25, 700, 1082, 999_999)
        ),
        *(
            (sent_bytes([digits]), numeric(5, 2), ErrorCode.SCHEMA_CHANGED)
            for digits in (b"1.505", b"1234.00", b"lots")
        ),
        (sent_bytes([b"\xff"]), builtin("text"), ErrorCode.VALUE_REJECTED),
    ],
)
def test_other_blocks_are_refused(block: bytes, kind: PostgresType, code: ErrorCode) -> None:
    """Values of another type or range mean a changed table; text must be UTF-8."""
    fault = fault_of(lambda: column_of(block, kind))

    expected = "column c0 is no longer"
    if code is ErrorCode.VALUE_REJECTED:
        expected = "a text of a row is invalid in the encoding of the database"
    assert fault.code is code
    assert fault.detail.startswith(expected)


@settings(max_examples=25)
@given(
    code=st.sampled_from([*FORMATS]),
    values=st.lists(st.none() | st.integers(-128, 127), min_size=1, max_size=40),
)
def test_arrays_are_read_back(code: str, values: Sequence[int | None]) -> None:
    """Elements of each width are read with their nulls, whatever follows the array."""
    kind: npt.DTypeLike = FORMATS[code]
    block = sent_array(values, code, oid=23)

    array = BinaryArray.read(block + struct.pack(">3i", -1, 4, -1), kind)

    found = array.values.tolist()
    if array.is_null is not None:
        found = [None if null else each for each, null in zip(found, array.is_null, strict=True)]
    assert (found, array.values.dtype) == (values, kind)
    assert (array.end, element_oid(block)) == (len(block), 23)


def page(prices: bytes, *limits: bytes | None) -> list[bytes]:
    """A page of PRICES with these limits."""
    rows = len(limits)
    return [
        sent_array([1] * rows, "q", oid=20),
        sent_bytes([FIRST, SECOND][:rows]),
        sent_bytes(limits),
        prices,
    ]


def test_snapshot_page_becomes_rows() -> None:
    """A page has exact keys and rows, without keys that no lookup can have."""
    prices = sent_array([7, None], "i", oid=23)

    found = postgres_snapshot_rows(page(prices, b"1.50", b"2.00"), PRICES)
    without = postgres_snapshot_rows(page(prices, b"1.50", None), PRICES)
    none = postgres_snapshot_rows([None] * 4, PRICES)
    large = [sent_array([1, LARGE + 1], "q", oid=20), *page(prices, b"1.50", b"2.00")[1:]]

    assert postgres_snapshot_rows(large, PRICES).has_row.tolist() == [True, False]
    assert found.keys.schema.equals(PRICES.schema.key, check_metadata=True)
    assert [key["item"] for key in found.keys.to_pylist()] == [FIRST, SECOND]
    assert found.rows == pa.record_batch({"price": pa.array([7, None], pa.int32())})
    assert (found.has_row.tolist(), found.is_gone.tolist()) == ([True] * 2, [False] * 2)
    assert np.array_equal(found.transaction_ids, [0, 0])
    assert without.rows.to_pylist() == [{"price": 7}]
    sizes = len(without.has_row), len(without.is_gone), len(without.transaction_ids)
    assert (sizes, none.keys.num_rows, none.rows.schema) == ((1, 1, 1), 0, PRICES.schema.columns)
