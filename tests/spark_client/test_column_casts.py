"""The dimension's columns in the types that Spark was promised."""

import pyarrow as pa
import pytest

from lookup_core.errors import InvalidRequest
from spark_client.column_casts import column_casts


def test_same_types_are_left_alone() -> None:
    """Nothing is copied when nothing has to change."""
    schema = pa.schema({"name": pa.utf8()})
    rows = pa.record_batch([pa.array(["x"])], schema)

    assert column_casts(schema, schema, dimension="d").apply(rows) is rows


def test_columns_are_cast_exactly() -> None:
    """Units, widths and large texts change, values do not."""
    source = pa.schema({"a": pa.uint32(), "b": pa.large_utf8(), "c": pa.timestamp("ns", "CET")})
    target = pa.schema({"a": pa.int64(), "b": pa.utf8(), "c": pa.timestamp("us", "UTC")})
    rows = pa.record_batch(
        [
            pa.array([1], pa.uint32()),
            pa.array(["x"], pa.large_utf8()),
            pa.array([5000], source[2].type),
        ],
        source,
    )

    cast = column_casts(source, target, dimension="d").apply(rows)

    assert cast.schema == target
    assert [column.cast(pa.int64()).to_pylist() for column in (cast[0], cast[2])] == [[1], [5]]


def test_lossy_value_is_an_error() -> None:
    """A value that the promised type cannot hold is named, not rounded."""
    source, target = pa.schema({"c": pa.timestamp("ns")}), pa.schema({"c": pa.timestamp("us")})
    rows = pa.record_batch([pa.array([5001], pa.timestamp("ns"))], source)

    with pytest.raises(InvalidRequest, match="column 'c' is timestamp"):
        column_casts(source, target, dimension="d").apply(rows)


def test_impossible_cast_shows_before_any_row() -> None:
    """A promise that no value can keep fails when the channel opens."""
    source, target = pa.schema({"c": pa.date32()}), pa.schema({"c": pa.bool_()})

    with pytest.raises(InvalidRequest, match="does not become bool"):
        column_casts(source, target, dimension="d")


def test_other_columns_are_an_error() -> None:
    """What the sidecar offers must be what was promised, in the same order."""
    with pytest.raises(InvalidRequest, match=r"'d' answers with \(a\), not \(b\)"):
        column_casts(pa.schema({"a": pa.utf8()}), pa.schema({"b": pa.utf8()}), dimension="d")
