"""Fallbacks for PySpark 3.5 and 4.0: keys from Series, structs as frames, salts of partitions."""

from datetime import date
from decimal import Decimal
from math import nan
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from lookup_core.errors import ErrorCode, InvalidRequest
from lookup_core.keys.canonical_keys import KEY_GROUPS
from spark_client.worker.key_shards import shard_salts, spark_hashes
from spark_client.worker.pandas_lookup import KeySeries, column_series, key_array

DECIMAL = pa.decimal128(38, 2)


def test_hashes_are_those_of_spark() -> None:
    """As `SELECT hash(0), hash(1), hash(-1)` returns in Spark."""
    assert spark_hashes(np.array([0, 1, -1], np.int32)).tolist() == [
        *(933211791, -559580957, -1604776387)
    ]


@pytest.mark.parametrize("count", [1, 2, 3, 200, 4095, KEY_GROUPS])
def test_salts_map_shards_to_partitions(count: int) -> None:
    """The hash of each shard's salt, modulo the count, is the shard."""
    salts = shard_salts(count)

    assert (spark_hashes(salts) % count).tolist() == list(range(count))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pd.Series([1, 2], dtype="int16"), pa.array([1, 2], pa.int64())),
        (pd.Series([2**53 + 1, -(2**63)]), pa.array([2**53 + 1, -(2**63)])),
        (pd.Series([1.0, None, 1 - 2**53]), pa.array([1, None, 1 - 2**53])),
        (pd.Series([None, None], dtype="float64"), pa.array([None, None], pa.int64())),
        (pd.Series([1.5, None]), pa.array([1.5, None])),
        (pd.Series([1.0, 2.0]), pa.array([1.0, 2.0])),
        (pd.Series(["a", None], dtype="object"), pa.array(["a", None])),
        (pd.Series(["a"], dtype="string[pyarrow]"), pa.array(["a"])),
        (pd.Series([True, None], dtype="object"), pa.array([True, None])),
        (pd.Series([b"\0"], dtype="object"), pa.array([b"\0"])),
        (pd.Series([date(1, 1, 1)], dtype="object"), pa.array([date(1, 1, 1)])),
        (pd.Series([Decimal("1.20"), None]), pa.array([Decimal("1.20"), None], DECIMAL)),
        (pd.Series([None], dtype="object"), pa.nulls(1)),
    ],
)
def test_keys_from_series_are_exact(values: Any, expected: pa.Array) -> None:  # noqa: ANN401
    """Each value keeps its value and a type that does not depend on the batch."""
    assert key_array(values, 0).equals(expected)
    assert key_array(values, 0).type == expected.type


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (pd.Series([2.0**53, None]), "argument 1 has NULLs and whole numbers from 2**53 on"),
        (pd.Series([pd.Timestamp(0)]), "argument 1 is a timestamp, which pandas has without"),
    ],
)
def test_inexact_series_are_refused(values: Any, reason: str) -> None:  # noqa: ANN401 -- Series
    """The error names the argument and the lookup without pandas."""
    with pytest.raises(InvalidRequest) as caught:
        key_array(values, 1)

    assert caught.value.code is ErrorCode.KEY_TYPE
    assert reason in caught.value.detail
    assert "use lookup_join" in caught.value.detail


def test_series_keep_their_first_type() -> None:
    """NULLs take the type of earlier values; values of another type are refused."""
    columns = KeySeries()

    first = columns.arrays((pd.Series([1]), pd.Series([None], dtype="object")))
    second = columns.arrays((pd.Series([None], dtype="object"), pd.Series(["a"])))

    assert first == (pa.array([1]), pa.nulls(1))
    assert second == (pa.array([None], pa.int64()), pa.array(["a"]))
    with pytest.raises(InvalidRequest, match="argument 0 was int64 and is string"):
        columns.arrays((pd.Series(["b"]), pd.Series(["a"])))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.list_(pa.float64()), [[1.0, nan, None, -0.0], None, []]),
        (pa.list_(pa.float32()), [[nan], None]),
        (pa.list_(pa.utf8()), [None, None]),
        (pa.struct({"x": pa.float64(), "y": pa.list_(pa.float64())}), [{"x": nan, "y": [nan]}]),
        (pa.float64(), [nan, None]),
    ],
)
def test_nan_and_null_of_columns_differ(kind: pa.DataType, values: list[Any]) -> None:
    """A NULL array is None, and NaN inside an array stays NaN, after PySpark's conversion."""
    series = column_series(pa.array(values, kind))

    # As PySpark 3.5 does: a function per array or struct, then Arrow's conversion with a mask.
    converted = series.apply(lambda value: value) if series.dtype == "object" else series
    mask = converted.isna() if series.dtype == "object" else None
    found = pa.Array.from_pandas(converted, mask=mask, type=kind)
    assert str(found.to_pylist()) == str(values)


def test_null_arrays_are_none() -> None:
    """PySpark takes any other value than None for an array."""
    series = column_series(pa.array([None, [1]], pa.list_(pa.int64())))

    assert series.tolist() == [None, [1]]
