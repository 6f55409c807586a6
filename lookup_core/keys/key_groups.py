"""Stable groups of keys, and which of n shards has which: work is divided by whole groups.

Another number of shards moves groups, never single keys, so that each key's order is kept. The
formula of the shards is that of Flink's `KeyGroupRangeAssignment`.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.keys.key_hashes import key_hashes

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
