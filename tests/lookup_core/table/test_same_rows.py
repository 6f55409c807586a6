"""Rows that are the same, value for value."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.table.reload import same_rows

NAN = float("nan")
COLUMNS = [
    (pa.int32(), [1, 2, None, None], [1, 3, None, 4], [True, False, True, False]),
    (pa.utf8(), ["a", "", None, "b"], ["a", None, None, "c"], [True, False, True, False]),
    (pa.float64(), [NAN, 0.0, None, 1.5], [NAN, -0.0, NAN, 1.5], [True, False, False, True]),
    (pa.float32(), [NAN, 0.5], [1.0, 0.5], [False, True]),
    (pa.bool_(), [True, False, None], [True, True, None], [True, False, True]),
    (pa.binary(16), [b"x" * 16, None], [b"x" * 16, b"y" * 16], [True, False]),
    (pa.decimal128(5, 2), [Decimal("1.00"), None], [Decimal("1.00"), None], [True, True]),
    (pa.timestamp("us", "UTC"), [1, 2], [1, 3], [True, False]),
    (
        pa.list_(pa.float64()),
        [[NAN, None], [1.0], None, [], None, [1.0, 2.0], [3.0]],
        [[NAN, None], [2.0], None, [], [], [1.0], [3.0]],
        [True, False, True, True, False, False, True],
    ),
    (pa.list_(pa.utf8()), [None, []], [[], []], [False, True]),
]


@pytest.mark.parametrize(("kind", "left", "right", "expected"), COLUMNS)
def test_values_of_each_type_compare(
    kind: pa.DataType, left: list[object], right: list[object], expected: list[bool]
) -> None:
    """Nulls are the same as nulls, NaN as NaN; all else by its value, for each type."""
    ours, theirs = (pa.record_batch({"x": pa.array(values, kind)}) for values in (left, right))

    assert same_rows(ours, theirs).tolist() == expected
    assert same_rows(ours.slice(1), theirs.slice(1)).tolist() == expected[1:]


def test_one_other_value_makes_another_row() -> None:
    """A row is the same only if all of its columns are."""
    left = pa.record_batch({"x": [1, 1, 2], "y": ["a", "b", "c"]})
    right = pa.record_batch({"x": [1, 1, 3], "y": ["a", "c", "c"]})

    assert same_rows(left, right).tolist() == [True, False, False]


def test_rows_without_columns_are_same() -> None:
    """There is nothing in which they could differ."""
    rows = pa.record_batch({"x": [1, 2]}).select([])

    assert np.array_equal(same_rows(rows, rows), [True, True])
