"""Canonical keys: bytes and 64-bit hashes of key columns or single keys, and key groups.

Equal keys have equal bytes and hashes in client and service.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.keys.typed_keys import NO_BLANKS_FIELD, TEXT_FIELDS, integer_range

_LONG_BYTES = 64  # longer keys are hashed one by one, not word by word for the whole column
MIXERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
GOLDEN_GAMMA = 0x9E3779B97F4A7C15
NULL_HASH = 0  # every key with a NULL part has it
# As stable as the hashes, because stored data may be partitioned by group. Many more groups than
# shards keep the shards even.
KEY_GROUPS = 4096
_WORD = 2**64 - 1

Hashes = npt.NDArray[np.uint64]
KeyId = int | bytes


@dataclass(frozen=True, slots=True)
class CanonicalKeys:
    """n keys; without `parts`, the hash is the key."""

    hashes: Hashes  # [n]
    parts: pa.BinaryArray | None  # [n] canonical bytes

    @property
    def size(self) -> int:
        """The number of keys."""
        return len(self.hashes)

    def ids(self) -> Sequence[KeyId]:
        """The keys as Python values, for dictionaries of queries; too slow for the hit path."""
        return self.hashes.tolist() if self.parts is None else self.parts.to_pylist()

    def take(self, positions: npt.NDArray[np.int32]) -> "CanonicalKeys":
        """The keys at these positions."""
        parts = None if self.parts is None else self.parts.take(pa.array(positions))
        return CanonicalKeys(self.hashes[positions], parts)


def canonical_keys(columns: pa.RecordBatch, *, seed: int = 0) -> CanonicalKeys:
    """The canonical form of n keys without nulls, of a dimension's exact key types.

    `seed` makes the hashes unpredictable for callers that choose the keys.
    """
    first = columns.column(0)
    if columns.num_columns == 1 and is_number(first.type):
        return CanonicalKeys(_mixed(_numbers(first).view(np.uint64) ^ np.uint64(seed)), None)
    if columns.num_columns == 1:
        parts = _as_bytes(first)
    else:
        pieces = [piece for column in columns.columns for piece in _delimited(column)]
        parts = pc.binary_join_element_wise(*pieces, b"")
    return CanonicalKeys(_hashes(parts, seed), parts)


def keys_of_ids(key_ids: Sequence[KeyId], *, seed: int = 0) -> CanonicalKeys:
    """The keys of these ids, in order, which were created with the same seed."""
    if not key_ids or isinstance(key_ids[0], int):
        return CanonicalKeys(np.array(key_ids, np.uint64), None)
    parts = pa.array(key_ids, pa.binary())
    return CanonicalKeys(_hashes(parts, seed), parts)


def has_number_keys(schema: DimensionSchema) -> bool:
    """Whether the hash of a key identifies it, so that no bytes need to be stored."""
    return len(schema.key) == 1 and is_number(schema.key.field(0).type)


_INT64, _BOOL, _DATE32, _TIMESTAMP = (
    kind.id for kind in (pa.int64(), pa.bool_(), pa.date32(), pa.timestamp("us"))
)


def is_number(kind: pa.DataType) -> bool:
    """Whether a value of this type is one 64-bit integer."""
    return kind.id in {_INT64, _BOOL, _DATE32, _TIMESTAMP} or bool(types.is_integer(kind))


def _numbers(column: pa.Array) -> npt.NDArray[np.int64]:
    kind = column.type.id
    if kind == _BOOL:
        column = column.cast(pa.int8())
    elif kind == _DATE32:
        column = column.view(pa.int32())
    elif kind == _TIMESTAMP:
        column = column.view(pa.int64())
    return np.ascontiguousarray(column.to_numpy(), np.int64)


def _as_bytes(column: pa.Array) -> pa.BinaryArray:
    if is_number(column.type):
        column = pa.array(_numbers(column)).view(pa.binary(8))
    elif types.is_decimal(column.type):
        column = column.view(pa.binary(column.type.byte_width))
    return column.cast(pa.binary())


def _delimited(column: pa.Array) -> list[pa.BinaryArray]:
    content = _as_bytes(column)
    has_fixed_width = is_number(column.type) or column.type.num_buffers == 2
    if has_fixed_width:
        return [content]
    lengths = pc.binary_length(content).to_numpy().astype(np.uint32)
    return [pa.array(lengths).view(pa.binary(4)).cast(pa.binary()), content]


# As numpy's numbers, whose creation would take half of the time for few keys.
_FIRST_MIXER, _SECOND_MIXER = map(np.uint64, MIXERS)
_SHIFTS = tuple(map(np.uint64, (30, 27, 31)))


def _mixed(values: Hashes) -> Hashes:
    first, second, third = _SHIFTS
    mixed = values ^ (values >> first)
    mixed *= _FIRST_MIXER
    mixed ^= mixed >> second
    mixed *= _SECOND_MIXER
    mixed ^= mixed >> third
    return mixed


def _hashes(parts: pa.BinaryArray, seed: int) -> Hashes:
    _, offset_buffer, content = parts.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[parts.offset : parts.offset + len(parts) + 1]
    lengths = np.diff(offsets)
    hashes = _mixed(lengths.astype(np.uint64) + np.uint64(seed))
    if lengths.any():
        starts = (offsets[:-1] - offsets[0]).astype(np.int64)
        content = content.slice(offsets[0], offsets[-1] - offsets[0])
        _fold_words(hashes, content, starts=starts, lengths=lengths)
    for position in np.flatnonzero(lengths > _LONG_BYTES).tolist():
        hashes[position] = _hash_one(parts[position].as_py(), seed)
    return hashes


def _fold_words(
    hashes: Hashes,
    content: pa.Buffer,
    *,
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int32],
) -> None:
    # With eight zero bytes behind the content, every word can be read as a whole.
    padded = np.zeros(content.size + 8, np.uint8)
    padded[: content.size] = np.frombuffer(content, np.uint8)
    words = np.ndarray(content.size + 1, "<u8", padded.data, strides=(1,))
    left = np.where(lengths > _LONG_BYTES, 0, lengths)
    active = np.flatnonzero(left)
    step = 0
    while active.size:
        word = words[starts[active] + step]
        surplus = np.maximum(8 - (left[active] - step), 0).astype(np.uint64) * np.uint64(8)
        word = (word << surplus) >> surplus  # without the bytes of the next key
        hashes[active] = _mixed((hashes[active] + np.uint64(GOLDEN_GAMMA)) ^ word)
        step += 8
        active = active[left[active] > step]


class SingleKey(NamedTuple):
    """A key of one column; without `part`, the hash is the key."""

    hash: int
    part: bytes | None  # canonical bytes


class SingleKeys:
    """Canonical form of single integer or text keys, without the fixed cost of arrays.

    Equal to that of `canonical_keys` with the same seed.
    """

    def __init__(self, schema: DimensionSchema, *, seed: int) -> None:
        field = schema.key.field(0) if len(schema.key) == 1 else pa.field("", pa.null())
        self._seed = seed
        self._integers = integer_range(field.type)
        self._is_text = types.is_string(field.type)
        self._may_have_nul = field.metadata not in TEXT_FIELDS
        self._ignores_blanks = field.metadata == NO_BLANKS_FIELD

    def of(self, value: object) -> SingleKey | None:
        """The key with this value; None for a value that needs `canonical_keys`."""
        if type(value) is int and value in self._integers:
            return SingleKey(_mixed_one((value ^ self._seed) & _WORD), None)
        if self._is_text and isinstance(value, str):
            return self._of_text(value)
        return None

    def _of_text(self, text: str) -> SingleKey | None:
        try:
            part = (text.rstrip(" ") if self._ignores_blanks else text).encode()
        except UnicodeEncodeError:
            return None
        if b"\0" in part and not self._may_have_nul:
            return None
        return SingleKey(_hash_one(part, self._seed), part)


def _hash_one(part: bytes, seed: int) -> int:
    if len(part) > _LONG_BYTES:
        digest = hashlib.blake2b(part, digest_size=8, key=seed.to_bytes(8, "little"))
        return int.from_bytes(digest.digest(), "little")
    mixed = _mixed_one(len(part) + seed & _WORD)
    for start in range(0, len(part), 8):
        word = int.from_bytes(part[start : start + 8], "little")
        mixed = _mixed_one((mixed + GOLDEN_GAMMA & _WORD) ^ word)
    return mixed


def _mixed_one(value: int) -> int:
    first, second = MIXERS
    value = (value ^ value >> 30) * first & _WORD
    value = (value ^ value >> 27) * second & _WORD
    return value ^ value >> 31


def key_hashes(keys: pa.RecordBatch) -> npt.NDArray[np.uint64]:
    """The unseeded hashes of n keys; equal integers of different widths have equal hashes."""
    has_null = rows_with_null(keys.columns)
    if has_null is None:
        return canonical_keys(keys).hashes
    hashes = np.full(keys.num_rows, NULL_HASH, np.uint64)
    hashes[~has_null] = canonical_keys(keys.filter(pa.array(~has_null))).hashes
    return hashes


def rows_with_null(columns: Sequence[pa.Array]) -> npt.NDArray[np.bool_] | None:
    """Which rows have a NULL in one of the key columns, so that no row matches; None if none."""
    nulls = [each.is_null().to_numpy(zero_copy_only=False) for each in columns if each.null_count]
    return np.logical_or.reduce(nulls) if nulls else None


def is_among(hashes: Hashes, others: Hashes) -> npt.NDArray[np.bool_]:
    """Which of the hashes are in `others`; both may have duplicates."""
    if not (len(hashes) and len(others)):
        return np.zeros(len(hashes), np.bool_)
    # Both sides are filtered by their low bits first, since sorting the larger one is expensive.
    found = np.zeros(len(hashes), np.bool_)
    places = np.flatnonzero(_may_be_among(hashes, others))
    candidates = others[_may_be_among(others, hashes)]
    found[places] = np.isin(hashes[places], candidates)
    return found


def _may_be_among(hashes: Hashes, others: Hashes) -> npt.NDArray[np.bool_]:
    is_marked = np.zeros(2**16, np.bool_)
    is_marked[others.astype(np.uint16)] = True
    return is_marked[hashes.astype(np.uint16)]


def key_groups(keys: pa.RecordBatch) -> npt.NDArray[np.int32]:
    """The group of each of n keys, in [0, KEY_GROUPS)."""
    return (key_hashes(keys) % np.uint64(KEY_GROUPS)).astype(np.int32)


def shards_of_groups(groups: npt.NDArray[np.int32], shard_count: int) -> npt.NDArray[np.int32]:
    """The shard of each group: even ranges of groups.

    Raises ValueError unless `shard_count` is in [1, KEY_GROUPS].
    """
    if not 1 <= shard_count <= KEY_GROUPS:
        raise ValueError(f"expected 1 to {KEY_GROUPS} shards, not {shard_count}")
    return (groups * shard_count // KEY_GROUPS).astype(np.int32)
