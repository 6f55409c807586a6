"""Dictionary encoding of key columns: the distinct keys, and the key of each row."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from lookup_core.keys.canonical_keys import GOLDEN_GAMMA, MIXERS

Numbers = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]
KeyPositions = npt.NDArray[np.intp]  # [rows] the distinct key of each

_GOLDEN = np.uint64(GOLDEN_GAMMA)  # 2**64 over the golden ratio, odd
_NEXT = np.uint64(MIXERS[0])  # odd; the next factor after a collision
_INVALID_TEXT = "\0"  # PostgreSQL has no such texts: the error of a key is `invalid_text`
_MANY_ROWS = 4096  # for fewer, the encoding of Arrow is faster


def _first_equal_rows(numbers: Numbers) -> Rows:
    """The first row with the same number, for each of n rows."""
    first = _hashed(numbers, _GOLDEN)
    factor = _GOLDEN
    rest = np.flatnonzero(numbers.take(first) != numbers)
    while rest.size:  # contains all rows of a number, or none
        with np.errstate(over="ignore"):
            factor *= _NEXT
        values = numbers.take(rest)
        found = _hashed(values, factor)
        is_equal = values.take(found) == values
        first[rest[is_equal]] = rest.take(found[is_equal])
        rest = rest[~is_equal]
    return first


def _first_rows(codes: Rows, count: int) -> Rows:
    """The first row of each code below `count`; undefined for a code without a row."""
    first = np.empty(count, np.intp)
    first[codes[::-1]] = np.arange(len(codes))[::-1]  # the last write wins
    return first


def _hashed(numbers: Numbers, factor: np.uint64) -> Rows:
    """The first row with the same hash, for each number; at most half of the hashes are used."""
    bits = (2 * len(numbers)).bit_length()
    places = ((numbers.view(np.uint64) * factor) >> np.uint64(64 - bits)).view(np.int64)
    return _first_rows(places, 1 << bits).take(places)


@dataclass(frozen=True, slots=True)
class EncodedKeys:
    """m distinct keys of n rows, in the order of their first occurrence."""

    keys: pa.RecordBatch  # [m]
    key_of_row: KeyPositions  # [n]

    def __len__(self) -> int:
        """The number of distinct keys."""
        return int(self.keys.num_rows)


def encoded_keys(columns: Sequence[pa.Array], schema: pa.Schema) -> EncodedKeys:
    """Encode the key columns of a run of rows; `schema` names their fields."""
    codes, distinct = _factorized(columns[0])
    if len(columns) == 1:
        return EncodedKeys(pa.record_batch([_in_utf8(distinct)], schema=schema), codes)
    for column in columns[1:]:
        more, values = _factorized(column)
        # Both factors are at most the number of rows, so the product stays far below 2**63.
        codes, _ = _factorized(pa.array(codes * len(values) + more))
    first = pa.array(_first_rows(codes, int(codes.max(initial=-1)) + 1))
    keys = [_in_utf8(column.take(first)) for column in columns]
    return EncodedKeys(pa.record_batch(keys, schema=schema), codes)


def _in_utf8(keys: pa.Array) -> pa.Array:
    """The keys; texts that are not UTF-8, as Spark may have them, become one that no row has.

    A peer would refuse all keys of the batch because of them.
    """
    if not (types.is_string(keys.type) or types.is_large_string(keys.type)):
        return keys
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid:
        contents = keys.cast(pa.large_binary()).to_pylist()
        return pa.array(map(_text, contents), keys.type)
    return keys


def _text(content: bytes | None) -> str | None:
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError:
        return _INVALID_TEXT


def _factorized(column: pa.Array) -> tuple[KeyPositions, pa.Array]:
    if len(column) >= _MANY_ROWS and types.is_int64(column.type) and not column.null_count:
        return _factorized_numbers(column)
    encoded = column.dictionary_encode(null_encoding="encode")
    return encoded.indices.to_numpy().astype(np.intp), encoded.dictionary


def _factorized_numbers(column: pa.Array) -> tuple[KeyPositions, pa.Array]:
    first = _first_equal_rows(column.to_numpy())
    is_first = first == np.arange(len(first))
    number = np.cumsum(is_first) - 1
    return number.take(first), column.take(pa.array(np.flatnonzero(is_first)))
