"""Restored keys: the key columns of canonical keys, the inverse of `canonical_keys`.

Converts key by key, for the few keys of an audit.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from lookup_core.keys.canonical_keys import MIXERS, CanonicalKeys, Hashes, is_number

_FIRST_INVERSE, _SECOND_INVERSE = (np.uint64(pow(each, -1, 2**64)) for each in MIXERS)
_LENGTH_BYTES = 4  # before a part of variable width
_NUMBER_BYTES = 8


def restored_keys(keys: CanonicalKeys, schema: pa.Schema, *, seed: int) -> pa.RecordBatch:
    """The columns of keys that `canonical_keys` made with this seed."""
    if keys.parts is None:
        numbers = (_unmixed(keys.hashes) ^ np.uint64(seed)).view(np.int64)
        return pa.record_batch([_of_numbers(numbers, schema.field(0).type)], schema=schema)
    parts = keys.parts.to_pylist()
    split = [[part] for part in parts]
    if len(schema) > 1:
        split = [[*_pieces(part, schema)] for part in parts]
    columns = [
        _of_bytes([pieces[at] for pieces in split], field.type) for at, field in enumerate(schema)
    ]
    return pa.record_batch(columns, schema=schema)


def _pieces(part: bytes, schema: pa.Schema) -> Iterator[bytes]:
    at = 0
    for field in schema:
        width = _fixed_bytes(field.type)
        if width is None:
            width = int.from_bytes(part[at : at + _LENGTH_BYTES], "little")
            at += _LENGTH_BYTES
        yield part[at : at + width]
        at += width


def _fixed_bytes(kind: pa.DataType) -> int | None:
    if is_number(kind):
        return _NUMBER_BYTES
    is_fixed = types.is_decimal(kind) or types.is_fixed_size_binary(kind)
    return int(kind.byte_width) if is_fixed else None


def _of_bytes(parts: Sequence[bytes], kind: pa.DataType) -> pa.Array:
    if is_number(kind):
        return _of_numbers(np.frombuffer(b"".join(parts), np.int64), kind)
    if types.is_decimal(kind):
        return pa.array(parts, pa.binary(kind.byte_width)).view(kind)
    return pa.array(parts, kind if types.is_fixed_size_binary(kind) else pa.binary()).cast(kind)


def _of_numbers(numbers: npt.NDArray[np.int64], kind: pa.DataType) -> pa.Array:
    if types.is_boolean(kind):
        return pa.array(numbers.astype(np.bool_))
    if types.is_date32(kind):
        return pa.array(numbers.astype(np.int32)).view(kind)
    if types.is_timestamp(kind):
        return pa.array(numbers).view(kind)
    return pa.array(numbers.astype(kind.to_pandas_dtype()), kind)


def _unmixed(hashes: Hashes) -> Hashes:
    """The inverse of the finaliser of SplitMix64."""
    values = _unshifted(hashes, 31) * _SECOND_INVERSE
    values = _unshifted(values, 27) * _FIRST_INVERSE
    return _unshifted(values, 30)


def _unshifted(values: Hashes, shift: int) -> Hashes:
    once, twice = values >> np.uint64(shift), values >> np.uint64(2 * shift)
    return np.asarray(values ^ once ^ twice)
