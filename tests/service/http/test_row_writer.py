"""A row alone is written as it is among others."""

from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.cache.row_store import StoredRow
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.keys.key_casts import UUID_FIELD
from service.http.replies.json_rows import RowWriter, RowWriters, json_rows

KEY = pa.schema({"id": pa.int64()})
UUID = pa.field("value", pa.binary(16)).with_metadata(UUID_FIELD)
COLUMNS = [
    pa.array([1, None], pa.int64()),
    pa.array(["é\0", None]),
    pa.array([True, None]),
    pa.array([float("nan"), 0.5]),
    pa.array([b"\xff", None]),
    pa.array([Decimal("1.10"), None], pa.decimal128(5, 2)),
    pa.array([date(2013, 1, 2), None]),
    pa.array([1_500_000, None], pa.timestamp("us", "UTC")),
    pa.array([1_500_000, None], pa.duration("us")),
    pa.array([[1, None], None], pa.list_(pa.int32())),
    pa.array([[date(2013, 1, 2)], []]),
]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.type))
def test_row_alone_is_the_same(column: pa.Array) -> None:
    """Of every type, the text of each row is what it is in a list of rows."""
    rows = pa.record_batch([column, pa.array([1, 2])], ["value", "number"])
    writer = RowWriter.of(DimensionSchema(KEY, rows.schema))

    texts = [writer.text(StoredRow(rows.columns, at)) for at in range(len(column))]

    assert b",".join(texts) == b"".join(json_rows(rows, np.ones(len(column), np.bool_)))


def test_uuid_alone_is_a_text() -> None:
    """Sixteen bytes that are an uuid are no base64."""
    writer = RowWriter.of(DimensionSchema(KEY, pa.schema([UUID])))

    text = writer.text(StoredRow([pa.array([bytes(range(16))], pa.binary(16))], 0))

    assert text == b'{"value":"00010203-0405-0607-0809-0a0b0c0d0e0f"}'


def test_stored_keys_are_not_written() -> None:
    """What stands before the columns of the dimension is nobody's business."""
    columns = [pa.array([b"key"]), pa.array(["Ada"])]

    assert RowWriter.of(_schema("name")).text(StoredRow(columns, 0)) == b'{"name":"Ada"}'
    assert RowWriter.of(_schema()).text(StoredRow(columns[:1], 0)) == b"{}"


def test_changed_schema_has_another_writer() -> None:
    """A writer is used again until its dimension has another schema."""
    writers, before, after = RowWriters(), _schema("name"), _schema("tier")

    first, again = writers.of("customers", before), writers.of("customers", before)

    assert first is again
    assert writers.of("customers", after).names == ["tier"]


def _schema(*names: str) -> DimensionSchema:
    return DimensionSchema(KEY, pa.schema([(name, pa.utf8()) for name in names]))
