"""The keys of a run of rows, each distinct one once, and which row asks for which.

Columns in, columns out: no Python value of a single key. Not the keys' canonical form: what equals
what is decided here by type and value alone, NULL like any other value.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from lookup_core.operator.equal_numbers import first_equal_rows, first_rows

Codes = npt.NDArray[np.intp]  # [rows] which of the distinct keys

_MANY = 4096  # rows; below, what Arrow does one by one is quicker than all at once


@dataclass(frozen=True, slots=True)
class EncodedKeys:
    """m distinct keys of n rows, in the order in which they first occur."""

    keys: pa.RecordBatch  # [m]
    codes: Codes  # [n]


def encoded_keys(columns: Sequence[pa.Array], schema: pa.Schema) -> EncodedKeys:
    """Encode the key columns of a run of rows; `schema` names their fields."""
    codes, distinct = _factorized(columns[0])
    if len(columns) == 1:
        return EncodedKeys(pa.record_batch([distinct], schema=schema), codes)
    for column in columns[1:]:
        more, values = _factorized(column)
        # Both factors are at most the number of rows, so the product stays far below 2**63.
        codes, _ = _factorized(pa.array(codes * len(values) + more))
    first = pa.array(first_rows(codes, int(codes.max(initial=-1)) + 1))
    return EncodedKeys(
        pa.record_batch([column.take(first) for column in columns], schema=schema), codes
    )


def _factorized(column: pa.Array) -> tuple[Codes, pa.Array]:
    if len(column) >= _MANY and types.is_int64(column.type) and not column.null_count:
        return _factorized_numbers(column)
    encoded = column.dictionary_encode(null_encoding="encode")
    return encoded.indices.to_numpy().astype(np.intp), encoded.dictionary


def _factorized_numbers(column: pa.Array) -> tuple[Codes, pa.Array]:
    first = first_equal_rows(column.to_numpy())
    is_first = first == np.arange(len(first))
    number = np.cumsum(is_first) - 1
    return number.take(first), column.take(pa.array(np.flatnonzero(is_first)))
