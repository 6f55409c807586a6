"""The dimension's columns in the types that Spark was promised."""

from decimal import Decimal

import pyarrow as pa
import pytest

from lookup_core.errors import InvalidRequest
from spark_client.output_columns import column_casts


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


def test_lists_are_cast_exactly() -> None:
    """The values of lists change as those of columns do; lengths and nulls stay."""
    source = pa.schema({"a": pa.list_(pa.uint32()), "b": pa.list_(pa.utf8())})
    target = pa.schema(
        {
            "a": pa.list_(pa.field("element", pa.int64())),
            "b": pa.list_(pa.field("element", pa.utf8())),
        }
    )
    values = {"a": [[1, None], None, []], "b": [["x"], [], None]}

    rows = pa.record_batch([pa.array(values[each.name], each.type) for each in source], source)
    cast = column_casts(source, target, dimension="d").apply(rows)

    assert cast.schema == target
    assert cast.to_pydict() == values


@pytest.mark.parametrize(
    ("values", "given", "wanted"),
    [
        ([1, 2], pa.list_(pa.int32()), pa.int32()),
        ([0.1], pa.list_(pa.float64()), pa.list_(pa.float32())),
        ([2], pa.list_(pa.int32()), pa.list_(pa.bool_())),
    ],
)
def test_lists_lose_nothing(values: object, given: pa.DataType, wanted: pa.DataType) -> None:
    """A list is no value, and its values are not rounded."""
    source, target = pa.schema({"c": given}), pa.schema({"c": wanted})
    rows = pa.record_batch([pa.array([None, values], given)], source)

    with pytest.raises(InvalidRequest, match="does not become"):
        column_casts(source, target, dimension="d").apply(rows)


def test_lossy_value_is_an_error() -> None:
    """A value that the promised type cannot hold is named, not rounded."""
    source, target = pa.schema({"c": pa.timestamp("ns")}), pa.schema({"c": pa.timestamp("us")})
    rows = pa.record_batch([pa.array([5001], pa.timestamp("ns"))], source)

    with pytest.raises(InvalidRequest, match="column 'c' is timestamp"):
        column_casts(source, target, dimension="d").apply(rows)


@pytest.mark.parametrize(
    ("value", "given", "wanted"),
    [
        (1e300, pa.float64(), pa.float32()),
        (0.1, pa.float64(), pa.float32()),
        (2, pa.int32(), pa.bool_()),
        (0.5, pa.float64(), pa.bool_()),
        (Decimal("0.1234567890123456789"), pa.decimal128(30, 19), pa.float64()),
        (0.1 + 1e-12, pa.float64(), pa.decimal128(10, 1)),
        (5, pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (5, pa.timestamp("us", "UTC"), pa.timestamp("us")),
        (86_400_000_001, pa.timestamp("us"), pa.date32()),
    ],
)
def test_nothing_is_rounded_or_cut(value: object, given: pa.DataType, wanted: pa.DataType) -> None:
    """Digits, times of day and zones are never lost in silence."""
    source, target = pa.schema({"c": given}), pa.schema({"c": wanted})
    rows = pa.record_batch([pa.array([None, value], given)], source)

    with pytest.raises(InvalidRequest, match="does not become"):
        column_casts(source, target, dimension="d").apply(rows)


def test_exact_floats_pass() -> None:
    """What the narrower type holds exactly is cast, NaN and nulls included."""
    source, target = pa.schema({"c": pa.float64()}), pa.schema({"c": pa.float32()})
    rows = pa.record_batch([pa.array([0.5, float("inf"), float("nan"), None])], source)

    cast = column_casts(source, target, dimension="d").apply(rows)

    assert repr(cast["c"].to_pylist()) == "[0.5, inf, nan, None]"


def test_impossible_cast_shows_before_any_row() -> None:
    """A promise that no value can keep fails when the channel opens."""
    source, target = pa.schema({"c": pa.date32()}), pa.schema({"c": pa.bool_()})

    with pytest.raises(InvalidRequest, match="does not become bool"):
        column_casts(source, target, dimension="d")


def test_other_columns_are_an_error() -> None:
    """What the sidecar offers must be what was promised, in the same order."""
    with pytest.raises(InvalidRequest, match=r"'d' answers with \(a\), not \(b\)"):
        column_casts(pa.schema({"a": pa.utf8()}), pa.schema({"b": pa.utf8()}), dimension="d")
