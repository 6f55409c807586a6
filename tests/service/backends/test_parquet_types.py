"""Types of Parquet files become types that lookups carry without losing a value, or none."""

import pyarrow as pa
import pytest

from service.connectors.parquet.file import plain_type


@pytest.mark.parametrize(
    ("stored", "plain"),
    [
        (pa.int64(), pa.int64()),
        (pa.uint32(), pa.int64()),
        (pa.uint64(), pa.decimal128(20, 0)),
        (pa.float16(), pa.float32()),
        (pa.large_utf8(), pa.utf8()),
        (pa.binary_view(), pa.binary()),
        (pa.date64(), pa.date32()),
        (pa.dictionary(pa.int32(), pa.large_utf8()), pa.utf8()),
        (pa.timestamp("ns"), pa.timestamp("us")),
        (pa.timestamp("ms", "Europe/Berlin"), pa.timestamp("us", "UTC")),
        (pa.decimal256(38, 4), pa.decimal128(38, 4)),
    ],
    ids=str,
)
def test_types_widen_to_plain_ones(stored: pa.DataType, plain: pa.DataType) -> None:
    """Each flat type has one that holds all its values."""
    assert plain_type(stored) == plain


@pytest.mark.parametrize(
    "stored",
    [pa.list_(pa.int64()), pa.decimal256(39, 0), pa.time32("s"), pa.null(), pa.uuid()],
    ids=str,
)
def test_other_types_are_not_carried(stored: pa.DataType) -> None:
    """Nested types, digits beyond 38 and the like have no plain type."""
    assert plain_type(stored) is None
