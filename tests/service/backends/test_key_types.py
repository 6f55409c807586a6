"""Keys are of types whose equality is exact everywhere, and of no other."""

import pyarrow as pa
import pytest

from service.connectors.parquet.file import is_key_type


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.utf8(), pa.binary(), pa.binary(16)),
        *(pa.bool_(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")),
        pa.decimal128(38, 9),
    ],
    ids=str,
)
def test_exact_types_may_be_keys(kind: pa.DataType) -> None:
    """Integers, texts, bytes, booleans, dates, timestamps and decimals are keys."""
    assert is_key_type(kind)


@pytest.mark.parametrize(
    "kind", [pa.float32(), pa.float64(), pa.null(), pa.list_(pa.int64()), pa.time64("us")], ids=str
)
def test_inexact_types_are_no_keys(kind: pa.DataType) -> None:
    """Floating point, nested types and what is left are not."""
    assert not is_key_type(kind)
