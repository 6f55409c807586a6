"""Every type of a row has one exact text in JSON, whatever the values are."""

from datetime import date, time
from decimal import Decimal
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest

from lookup_core.keys.key_casts import UUID_FIELD
from service.http.replies.json_rows import CHUNK_ROWS, json_rows


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        (pa.array([2**63 - 1, None], pa.int64()), [2**63 - 1, None]),
        (pa.array([float("nan"), float("inf"), 0.1]), [None, None, 0.1]),
        (pa.array([Decimal("1.10"), Decimal("-0.01")], pa.decimal128(5, 2)), ["1.10", "-0.01"]),
        (pa.array([b"\xff\x00", b""]), ["/wA=", ""]),
        (pa.array([date(2013, 1, 2), None]), ["2013-01-02", None]),
        (pa.array([time(1, 2, 3, 4)], pa.time64("us")), ["01:02:03.000004"]),
        (pa.array([1_500_000], pa.timestamp("us")), ["1970-01-01T00:00:01.500000"]),
        (pa.array([2_000_000], pa.timestamp("us", "Europe/Berlin")), ["1970-01-01T00:00:02Z"]),
        (pa.array([1], pa.timestamp("ns", "UTC")), ["1970-01-01T00:00:00.000000001Z"]),
        (pa.array([253_402_300_800], pa.timestamp("s")), ["10000-01-01T00:00:00"]),
        (pa.array(["é\0\U0001f600", '"\\']), ["é\0\U0001f600", '"\\']),
        (pa.array([[1.5], None]), [[1.5], None]),
        (pa.array([[date(2013, 1, 2), None], []]), [["2013-01-02", None], []]),
        (pa.array([None, [0]], pa.list_(pa.timestamp("s"))), [None, ["1970-01-01T00:00:00"]]),
        (pa.array([[9], [1, 2]], pa.list_(pa.decimal128(3, 1)))[1:], [["1.0", "2.0"]]),
        (pa.array([True, False]), [True, False]),
        (pa.array([1_000_000], pa.duration("us")), ["0:00:01"]),
    ],
)  # fmt: skip
def test_values_are_written_exactly(column: pa.Array, texts: list[Any]) -> None:
    """A value can be told from every other value of its type."""
    rows = pa.record_batch([column], ["value"])

    assert _read(rows) == [{"value": text} for text in texts]


def test_uuids_are_texts() -> None:
    """Sixteen bytes that are an uuid are written as people write it."""
    field = pa.field("id", pa.binary(16)).with_metadata(UUID_FIELD)
    rows = pa.record_batch(
        [pa.array([bytes(range(16)), None], pa.binary(16))], schema=pa.schema([field])
    )

    assert _read(rows) == [{"id": "00010203-0405-0607-0809-0a0b0c0d0e0f"}, {"id": None}]


def test_absent_rows_are_null() -> None:
    """A row that is not there is told apart from a row of nulls."""
    rows = pa.record_batch({"value": pa.nulls(2, pa.int32())})

    assert _read(rows, [True, False]) == [{"value": None}, None]


def test_rows_without_columns_are_objects() -> None:
    """Who asks for no columns still sees which rows there are."""
    assert _read(pa.record_batch([], schema=pa.schema([])), [True, False]) == [{}, None]


def test_many_rows_come_in_chunks() -> None:
    """Chunks put together are one list, and none is long."""
    size = 2 * CHUNK_ROWS + 1
    rows = pa.record_batch({"value": pa.array(range(size))})

    chunks = list(json_rows(rows, np.ones(size, np.bool_)))

    assert len(chunks) == 3
    assert [row["value"] for row in orjson.loads(b"[" + b"".join(chunks) + b"]")] == [*range(size)]


def _read(rows: pa.RecordBatch, has_row: list[bool] | None = None) -> list[Any]:
    mask = np.array(has_row if has_row is not None else [True] * rows.num_rows)
    parsed: list[Any] = orjson.loads(b"[" + b"".join(json_rows(rows, mask)) + b"]")
    return parsed
