"""Partitions of keys in the Python worker: the shard of each record, and a salt that selects it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.keys.canonical_keys import key_groups, shards_of_groups

_MURMUR_SEED = np.uint32(42)


@dataclass(frozen=True, slots=True)
class SaltTask:
    """The function that `mapInArrow` calls: adds the salt of each record's shard."""

    key_columns: tuple[int, ...]  # positions
    count: int
    width: int  # columns of the records, before hidden ones

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The records, each with the salt of its shard behind its columns."""
        salts = shard_salts(self.count)
        for batch in batches:
            shards = _shards_of([batch.column(index) for index in self.key_columns], self.count)
            columns = [*batch.columns[: self.width], pa.array(salts[shards])]
            yield pa.record_batch(columns, [*batch.schema.names[: self.width], "salt"])


def shard_salts(count: int) -> npt.NDArray[np.int32]:
    """[count] For each shard an integer that Spark's hash partitioning maps to it."""
    salts = np.full(count, -1, np.int32)
    start = 0
    while (salts < 0).any():
        tried = np.arange(start, start + 16 * count, dtype=np.int32)
        start += len(tried)
        salts[spark_hashes(tried) % count] = tried  # pmod: the remainder has the divisor's sign
    return salts


def spark_hashes(values: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """The hashes of int columns in Spark: Murmur3, 32 bits, of four bytes."""
    mixed = _rotated(values.astype(np.uint32) * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    mixed = _rotated(mixed ^ _MURMUR_SEED, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    mixed ^= np.uint32(4)  # the number of bytes
    mixed = (mixed ^ mixed >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    mixed = (mixed ^ mixed >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    return (mixed ^ mixed >> np.uint32(16)).view(np.int32)


def _rotated(values: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.uint32]:
    return values << np.uint32(bits) | values >> np.uint32(32 - bits)


def shards_function(count: int) -> Callable[..., pa.Array]:
    """A function that `arrow_udf` calls: the shard of each key, of `count`."""

    def shards(*keys: pa.Array) -> pa.Array:
        return pa.array(_shards_of(keys, count))

    return shards


def _shards_of(keys: Sequence[pa.Array], count: int) -> npt.NDArray[np.int32]:
    batch = pa.record_batch(list(keys), [f"key {index}" for index in range(len(keys))])
    return shards_of_groups(key_groups(batch), count)
