"""Dictionary encoding of key columns: each distinct key once, and its rows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from lookup_core.keys.canonical_keys import GOLDEN_GAMMA, MIXERS

Numbers = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]

_GOLDEN = np.uint64(GOLDEN_GAMMA)  # 2**64 over the golden ratio, odd
_NEXT = np.uint64(MIXERS[0])  # another odd factor for those that collided


def first_equal_rows(numbers: Numbers) -> Rows:
    """For each of n numbers the first row with the same one."""
    first = _hashed(numbers, _GOLDEN)
    factor = _GOLDEN
    rest = np.flatnonzero(numbers.take(first) != numbers)
    while rest.size:  # all rows of a number are among them, or none
        with np.errstate(over="ignore"):
            factor *= _NEXT
        values = numbers.take(rest)
        found = _hashed(values, factor)
        is_equal = values.take(found) == values
        first[rest[is_equal]] = rest.take(found[is_equal])
        rest = rest[~is_equal]
    return first


def first_rows(codes: Rows, count: int) -> Rows:
    """For each of the codes below `count` the first row with it; anything for those of no row."""
    first = np.empty(count, np.intp)
    first[codes[::-1]] = np.arange(len(codes))[::-1]  # the last to be written is the first row
    return first


def _hashed(numbers: Numbers, factor: np.uint64) -> Rows:
    """For each number the first row with the same hash, half of which stay without a number."""
    bits = (2 * len(numbers)).bit_length()
    places = ((numbers.view(np.uint64) * factor) >> np.uint64(64 - bits)).view(np.int64)
    return first_rows(places, 1 << bits).take(places)


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
