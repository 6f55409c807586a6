"""Lookups over pandas Series in the Python worker, for PySpark before 4.1.

Keys that pandas does not represent exactly are refused.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import isnan
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from pyarrow import types
from pyspark.sql import Column

from lookup_core.errors import ErrorCode, InvalidRequest
from spark_client.worker.lookup_task import LookupFunctionTask

LookupFunction: TypeAlias = Callable[..., Column]
Series: TypeAlias = Any  # pandas.Series; pandas has no types here
Frame: TypeAlias = Any  # pandas.DataFrame

_EXACT = 2**53  # doubles represent smaller whole numbers exactly
_REMEDY = "use lookup_join, or PySpark 4.1 or newer"
# What a registered function needs; Spark reads these from its own functions.
_REGISTERED = ("func", "returnType", "evalType", "deterministic")


@dataclass(frozen=True, slots=True)
class PandasLookup:
    """The function of an iterator of Series, or of tuples of them, that `pandas_udf` calls."""

    task: LookupFunctionTask
    mark: str | None  # name of an added column: whether there is a row

    def __call__(self, series: Iterator[Series | tuple[Series, ...]]) -> Iterator[Frame]:
        """A row for each row of the input, in the same order."""
        columns = KeySeries()
        batches = map(columns.arrays, series)
        for keys in batches:
            # A key of NULLs only has no type until here: such a batch is a lookup of its own.
            is_typed = not any(types.is_null(key.type) for key in keys)
            for structs in self.task(chain([keys], batches if is_typed else ())):
                yield self._frame(structs)

    def _frame(self, structs: pa.StructArray) -> Frame:
        import pandas as pd  # noqa: PLC0415 -- as above

        arrays = dict(zip(self.task.columns.names, structs.flatten(), strict=True))
        if self.mark is not None:
            arrays[self.mark] = structs.is_valid()
        return pd.DataFrame({name: column_series(each) for name, each in arrays.items()})


def column_series(array: pa.Array) -> Series:
    """The values of a dimension's column for PySpark; NaN and NULL stay different."""
    import pandas as pd  # noqa: PLC0415 -- as above

    if types.is_nested(array.type):
        # PySpark converts each array and struct itself, and only None is NULL to it.
        values = [_without_nan(value, array.type) for value in array.to_pylist()]
        return pd.Series(values, dtype="object")
    # Arrow's own values: in those of numpy, NULL and NaN are the same.
    return pd.Series(array, dtype=pd.ArrowDtype(array.type))


def _without_nan(value: Any, kind: pa.DataType) -> Any:  # noqa: ANN401 -- Python's values of Arrow
    """The value with scalars of Arrow for NaN, which inside an array would become NULL."""
    match value:
        case list():
            return [_without_nan(each, kind.value_type) for each in value]
        case dict():
            return {name: _without_nan(each, kind.field(name).type) for name, each in value.items()}
        case float() if isnan(value):
            return pa.scalar(value, kind)
    return value


class KeySeries:
    """The key's columns from Series, always in the types of their first values.

    A column without a value so far has the type null.
    """

    def __init__(self) -> None:
        self._types: list[pa.DataType] = []

    def arrays(self, series: Series | tuple[Series, ...]) -> tuple[pa.Array, ...]:
        """The columns of one batch; raises InvalidRequest if a value is not exact."""
        parts: Sequence[Series] = series if isinstance(series, tuple) else (series,)
        arrays = [key_array(part, position) for position, part in enumerate(parts)]
        if not self._types:
            self._types = [pa.null()] * len(arrays)
        for position, array in enumerate(arrays):
            known = self._types[position]
            if types.is_null(array.type):
                arrays[position] = pa.nulls(len(array), known)
            elif not types.is_null(known) and array.type != known:
                raise _refused(position, f"was {known} and is {array.type}")
            self._types[position] = arrays[position].type
        return tuple(arrays)


def key_array(series: Series, position: int) -> pa.Array:
    """The values of a Series; all integers are int64. Raises InvalidRequest if they are not exact.

    pandas has integers with NULLs as doubles, and timestamps without their zone. So doubles with
    NULLs and whole numbers count as integers.
    """
    if series.dtype.kind == "M":
        raise _refused(position, "is a timestamp, which pandas has without its zone")
    if series.dtype == np.float64 and series.hasnans:
        return _whole_numbers(series.to_numpy(), position)
    array = pa.Array.from_pandas(series)
    if types.is_integer(array.type):
        return array.cast(pa.int64())
    if types.is_large_string(array.type):
        return array.cast(pa.utf8())
    if types.is_decimal(array.type):  # all values of a Spark column have the same scale
        return array.cast(pa.decimal128(38, array.type.scale))
    return array


def _whole_numbers(values: Any, position: int) -> pa.Array:  # noqa: ANN401 -- of numpy
    is_null = np.isnan(values)
    numbers = np.where(is_null, 0, values)
    if not (np.abs(numbers) < _EXACT).all():
        detail = "has NULLs and whole numbers from 2**53 on, which pandas rounds; remove the NULLs"
        raise _refused(position, detail)
    whole = numbers.astype(np.int64)
    if not (whole == numbers).all():
        return pa.array(numbers, mask=is_null)  # doubles are no keys: the sidecar refuses them
    return pa.array(whole, mask=is_null)


def _refused(position: int, detail: str) -> InvalidRequest:
    return InvalidRequest(ErrorCode.KEY_TYPE, f"argument {position} {detail}; {_REMEDY}")
