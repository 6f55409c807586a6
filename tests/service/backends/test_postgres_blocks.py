"""Blocks of bytes on their way to Arrow."""

import math
from typing import Any

import pyarrow as pa
import pytest

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.ports.backend import FetchedRows
from service.connectors.postgres.blocks import rows_of_blocks
from service.connectors.postgres.table import PostgresType
from tests.service.backends.described_tables import builtin, table_of
from tests.service.backends.sent_arrays import sent_array, sent_bytes

DAYS_TO_2000 = 10_957
DECIMAL = PostgresType("numeric", is_builtin=True, modifier=(5 << 16 | 2) + 4)


def read(block: bytes, kind: PostgresType, *, rows: int = 1) -> FetchedRows:
    """The answer for a table of one column, to a query for so many keys with a row each."""
    ordinals = sent_array(range(1, rows + 1), "q", oid=20)
    return rows_of_blocks([ordinals, block], table_of(kind), key_count=rows)


def fault_of(block: bytes, kind: PostgresType) -> BackendError:
    """The error that reading a column raises."""
    with pytest.raises(BackendError) as caught:
        read(block, kind)
    return caught.value


def test_blocks_become_columns() -> None:
    """Ordinals, which count from 1 in SQL, become positions; values go to their columns."""
    table = table_of(builtin("text"), builtin("int4"))
    ordinals = sent_array([3, 1, 3], "q", oid=20)
    blocks = [ordinals, sent_bytes(["ä".encode(), None, b""]), sent_array([1, 2, 3], "i", oid=23)]

    fetched = rows_of_blocks(blocks, table, key_count=3)

    assert fetched.ordinals.tolist() == [2, 0, 2]
    assert fetched.rows == pa.record_batch(
        [["ä", None, ""], pa.array([1, 2, 3], pa.int32())], schema=table.schema.columns
    )


def test_snapshot_comes_with_the_blocks() -> None:
    """What the query saw stands behind the last column, with rows and without."""
    table = table_of(builtin("int4"))
    ordinals, values = sent_array([1], "q", oid=20), sent_array([7], "i", oid=23)
    blocks: list[list[Any]] = [[ordinals, values, "f 7:9:7"], [None, None, "t 7:9:"]]

    fetched = [rows_of_blocks(each, table, key_count=1, tells_snapshot=True) for each in blocks]

    assert [each.ordinals.tolist() for each in fetched] == [[0], []]
    assert [each.snapshot and each.snapshot.is_of_standby for each in fetched] == [False, True]


def test_no_rows_are_empty_columns() -> None:
    """Without rows all aggregates are NULL: an empty batch of the right schema."""
    table = table_of(builtin("text"))

    fetched = rows_of_blocks([None, None], table, key_count=3)

    assert fetched.ordinals.tolist() == []
    assert fetched.rows == pa.record_batch([pa.array([], pa.utf8())], schema=table.schema.columns)


@pytest.mark.parametrize(
    ("name", "oid", "code", "arrow"),
    [
        ("bool", 16, "?", pa.bool_()),
        ("int2", 21, "h", pa.int16()),
        ("int8", 20, "q", pa.int64()),
        ("float4", 700, "f", pa.float32()),
        ("float8", 701, "d", pa.float64()),
    ],
)
def test_values_of_one_width_are_read(name: str, oid: int, code: str, arrow: pa.DataType) -> None:
    """Each kind of number is read in its width, nulls among them."""
    fetched = read(sent_array([1, None, 0], code, oid=oid), builtin(name), rows=3)

    assert fetched.rows.column(0) == pa.array([1, None, 0], pa.int64()).cast(arrow)


def test_not_a_number_is_no_null() -> None:
    """NaN is a value of its own."""
    fetched = read(sent_array([math.nan, None], "d", oid=701), builtin("float8"), rows=2)

    assert str(fetched.rows.column(0).to_pylist()) == "[nan, None]"


@pytest.mark.parametrize(
    ("name", "oid", "code", "arrow", "unit"),
    [
        ("date", 1082, "i", pa.date32(), 1),
        ("timestamp", 1114, "q", pa.timestamp("us"), 86_400_000_000),
        ("timestamptz", 1184, "q", pa.timestamp("us", "UTC"), 86_400_000_000),
    ],
)
def test_times_count_from_1970(
    name: str, oid: int, code: str, arrow: pa.DataType, unit: int
) -> None:
    """PostgreSQL counts days and microseconds from 2000."""
    fetched = read(
        sent_array([0, None, -DAYS_TO_2000 * unit], code, oid=oid), builtin(name), rows=3
    )

    days = pa.array([DAYS_TO_2000, None, 0], pa.int32()).view(pa.date32())
    assert fetched.rows.column(0) == days.cast(arrow)


@pytest.mark.parametrize(
    ("kind", "sent", "value"),
    [
        (builtin("bytea"), b"\x00\xff", b"\x00\xff"),
        (builtin("jsonb"), b"{}", "{}"),
        (DECIMAL, b"-1.50", -1.5),
    ],
    ids=["bytea", "jsonb", "numeric"],
)
def test_values_of_any_length_are_read(kind: PostgresType, sent: bytes, value: object) -> None:
    """Bytes, texts, and what is written as a text."""
    fetched = read(sent_bytes([None, sent]), kind, rows=2)

    assert fetched.rows.column(0).to_pylist() == [None, value]


def test_column_of_nulls_has_its_type() -> None:
    """Nothing but nulls fits any column."""
    fetched = read(sent_array([None, None], "i", oid=23), builtin("int4"), rows=2)

    assert fetched.rows.column(0) == pa.array([None, None], pa.int32())


@pytest.mark.parametrize("ordinals", [[0], [4], [1, 2]])
def test_impossible_answers_are_never_guessed_at(ordinals: list[int]) -> None:
    """An ordinal that was not asked, or columns of unequal length, are an error inside."""
    blocks = [sent_array(ordinals, "q", oid=20), sent_array([7], "i", oid=23)]

    with pytest.raises(BackendError) as caught:
        rows_of_blocks(blocks, table_of(builtin("int4")), key_count=3)

    assert caught.value.code is ErrorCode.INTERNAL


def test_wider_integers_are_read_while_they_fit() -> None:
    """A column that was made wider changes no value, and so nobody's answer."""
    fetched = read(sent_array([2**31 - 1], "q", oid=20), builtin("int4"))

    assert fetched.rows.column(0) == pa.array([2**31 - 1], pa.int32())
    assert fault_of(sent_array([2**31], "q", oid=20), builtin("int4")).code is (
        ErrorCode.SCHEMA_CHANGED
    )


@pytest.mark.parametrize("oid", [16, 25, 700, 1082, 999_999])
def test_other_types_mean_a_changed_table(oid: int) -> None:
    """Elements of another type say that the table has changed, whatever they look like."""
    error = fault_of(sent_array([1], "i", oid=oid), builtin("int4"))

    assert error.code is ErrorCode.SCHEMA_CHANGED
    assert "column c0 no longer holds int32" in error.detail


def test_zone_of_a_timestamp_is_part_of_its_type() -> None:
    """A timestamp with a zone does not pass for one without: it would be read hours off."""
    error = fault_of(sent_array([0], "q", oid=1184), builtin("timestamp"))

    assert error.code is ErrorCode.SCHEMA_CHANGED


@pytest.mark.parametrize("digits", [b"1.505", b"1234.00", b"lots"])
def test_number_beyond_its_precision_means_a_change(digits: bytes) -> None:
    """A numeric that does not fit the described precision is not rounded."""
    assert fault_of(sent_bytes([digits]), DECIMAL).code is ErrorCode.SCHEMA_CHANGED


def test_text_that_is_none_is_refused() -> None:
    """A database without an encoding may hold bytes that are no text."""
    error = fault_of(sent_bytes([b"\xff"]), builtin("text"))

    assert error.code is ErrorCode.BACKEND_REJECTED
    assert error.detail == "the table holds text that is not UTF-8"
