"""Canonical bytes and 64-bit hashes of typed keys, whole columns at a time; key groups.

Equal keys have equal bytes in client and service.
"""

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lookup_core.dimension_schema import DimensionSchema

LONG_BYTES = 64  # longer keys are hashed one by one: a pass over all for each word would not end
MIXERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
GOLDEN_GAMMA = 0x9E3779B97F4A7C15

Hashes = npt.NDArray[np.uint64]
KeyId = int | bytes


@dataclass(frozen=True, slots=True)
class CanonicalKeys:
    """n keys; `parts` is None where the hash alone is the key."""

    hashes: Hashes  # [n]
    parts: pa.BinaryArray | None  # [n] canonical bytes

    @property
    def size(self) -> int:
        """How many keys there are."""
        return len(self.hashes)

    def ids(self) -> Sequence[KeyId]:
        """The keys as Python values, for tables of what is in flight; never on the hit path."""
        return self.hashes.tolist() if self.parts is None else self.parts.to_pylist()

    def take(self, positions: npt.NDArray[np.int32]) -> "CanonicalKeys":
        """The keys at these positions."""
        parts = None if self.parts is None else self.parts.take(pa.array(positions))
        return CanonicalKeys(self.hashes[positions], parts)


def canonical_keys(columns: pa.RecordBatch, *, seed: int = 0) -> CanonicalKeys:
    """The canonical form of n keys without nulls, of a dimension's exact key types.

    `seed` makes the hashes unpredictable to whoever chooses the keys.
    """
    if columns.num_columns == 1 and is_number(columns.schema.field(0).type):
        numbers = _numbers(columns.column(0)).view(np.uint64)
        return CanonicalKeys(_mixed(numbers ^ np.uint64(seed)), None)
    if columns.num_columns == 1:
        parts = _as_bytes(columns.column(0))
    else:
        pieces = [piece for column in columns.columns for piece in _delimited(column)]
        parts = pc.binary_join_element_wise(*pieces, b"")
    return CanonicalKeys(_hashes(parts, seed), parts)


def keys_of_ids(key_ids: Sequence[KeyId], *, seed: int = 0) -> CanonicalKeys:
    """The keys that have these ids, in the same order; `seed` is the one they were made with."""
    if not key_ids or isinstance(key_ids[0], int):
        return CanonicalKeys(np.array(key_ids, np.uint64), None)
    parts = pa.array(key_ids, pa.binary())
    return CanonicalKeys(_hashes(parts, seed), parts)


def has_number_keys(schema: DimensionSchema) -> bool:
    """Whether the dimension's keys are their own hashes, so that no bytes need be kept."""
    return len(schema.key) == 1 and is_number(schema.key.field(0).type)


def is_number(kind: pa.DataType) -> bool:
    """Whether a column of this type fits into eight bytes a key."""
    return any(
        fits(kind)
        for fits in (types.is_integer, types.is_boolean, types.is_date32, types.is_timestamp)
    )


def _numbers(column: pa.Array) -> npt.NDArray[np.int64]:
    if types.is_boolean(column.type):
        column = column.cast(pa.int8())
    elif types.is_date32(column.type):
        column = column.view(pa.int32())
    elif types.is_timestamp(column.type):
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


def _mixed(values: Hashes) -> Hashes:
    mixed = values ^ (values >> np.uint64(30))
    mixed *= np.uint64(MIXERS[0])
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(MIXERS[1])
    mixed ^= mixed >> np.uint64(31)
    return mixed


def _hashes(parts: pa.BinaryArray, seed: int) -> Hashes:
    _, offset_buffer, content = parts.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[parts.offset : parts.offset + len(parts) + 1]
    lengths = np.diff(offsets)
    hashes = _mixed(lengths.astype(np.uint64) + np.uint64(seed))
    if lengths.any():
        starts = (offsets[:-1] - offsets[0]).astype(np.int64)
        content = content.slice(offsets[0], offsets[-1] - offsets[0])  # not what others own
        _fold_words(hashes, content, starts=starts, lengths=lengths)
    for position in np.flatnonzero(lengths > LONG_BYTES).tolist():
        digest = hashlib.blake2b(
            parts[position].as_py(), digest_size=8, key=seed.to_bytes(8, "little")
        )
        hashes[position] = np.frombuffer(digest.digest(), np.uint64)[0]
    return hashes


def _fold_words(
    hashes: Hashes,
    content: pa.Buffer,
    *,
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int32],
) -> None:
    # Eight zero bytes behind the content let every word be read whole, also the very last one.
    padded = np.zeros(content.size + 8, np.uint8)
    padded[: content.size] = np.frombuffer(content, np.uint8)
    words = np.ndarray(content.size + 1, "<u8", padded.data, strides=(1,))
    left = np.where(lengths > LONG_BYTES, 0, lengths)
    active = np.flatnonzero(left)
    step = 0
    while active.size:
        word = words[starts[active] + step]
        surplus = np.maximum(8 - (left[active] - step), 0).astype(np.uint64) * np.uint64(8)
        word = (word << surplus) >> surplus  # drop what belongs to the next key
        hashes[active] = _mixed((hashes[active] + np.uint64(GOLDEN_GAMMA)) ^ word)
        step += 8
        active = active[left[active] > step]


NULL_HASH = 0  # of every key with a NULL part: none of them equals anything


def key_hashes(keys: pa.RecordBatch) -> npt.NDArray[np.uint64]:
    """The hashes of n keys; integers of any width have that of their value."""
    if not any(column.null_count for column in keys.columns):
        return canonical_keys(keys).hashes
    is_whole = functools.reduce(pc.and_, [column.is_valid() for column in keys.columns])
    hashes = np.full(keys.num_rows, NULL_HASH, np.uint64)
    hashes[is_whole.to_numpy(zero_copy_only=False)] = canonical_keys(keys.filter(is_whole)).hashes
    return hashes


_MARKS = 2**16


def is_among(hashes: Hashes, others: Hashes) -> npt.NDArray[np.bool_]:
    """Which of the hashes are also in `others`; both may have duplicates."""
    if not (len(hashes) and len(others)):
        return np.zeros(len(hashes), np.bool_)
    # Sorting the larger side would cost more than all else: what may be equal is found first, on
    # both sides.
    found = np.zeros(len(hashes), np.bool_)
    places = np.flatnonzero(_may_be_among(hashes, others))
    candidates = others[_may_be_among(others, hashes)]
    found[places] = np.isin(hashes[places], candidates)
    return found


def _may_be_among(hashes: Hashes, others: Hashes) -> npt.NDArray[np.bool_]:
    is_marked = np.zeros(_MARKS, np.bool_)
    is_marked[_low_bits(others)] = True
    return is_marked[_low_bits(hashes)]


def _low_bits(hashes: Hashes) -> npt.NDArray[np.uint16]:
    return hashes.astype(np.uint16)


# Fixed for good, as are the hashes: what was divided by another number would not fit together. Many
# more than there are shards, so that no shard has much more than another.
KEY_GROUPS = 4096


def key_groups(keys: pa.RecordBatch) -> npt.NDArray[np.int32]:
    """The group of each of n keys, from 0 up to `KEY_GROUPS`; equal keys have the same."""
    return (key_hashes(keys) % np.uint64(KEY_GROUPS)).astype(np.int32)


def shards_of_groups(groups: npt.NDArray[np.int32], shard_count: int) -> npt.NDArray[np.int32]:
    """Which of so many shards each group belongs to: neighbouring groups, as evenly as can be.

    Raises ValueError unless there is a shard, and a group for each.
    """
    if not 1 <= shard_count <= KEY_GROUPS:
        raise ValueError(f"there may be 1 to {KEY_GROUPS} shards, not {shard_count}")
    return (groups * shard_count // KEY_GROUPS).astype(np.int32)
