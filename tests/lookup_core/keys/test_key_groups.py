"""Stable groups of keys, and the shards that have them."""

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.keys.canonical_keys import KEY_GROUPS, key_groups, shards_of_groups

ALL = np.arange(KEY_GROUPS, dtype=np.int32)


def test_groups_never_change() -> None:
    """What was divided by groups must be found again by any later version."""
    numbers = pa.record_batch([pa.array([1, 2, None, 10**12])], ["id"])
    texts = pa.record_batch([pa.array(["a", "b", "", "EWR"])], ["id"])

    assert key_groups(numbers).tolist() == [1509, 1162, 0, 2095]
    assert key_groups(texts).tolist() == [421, 1746, 0, 1156]


def test_groups_share_keys_evenly() -> None:
    """A hundred thousand neighbouring numbers are spread over all shards."""
    groups = key_groups(pa.record_batch([pa.array(range(100_000))], ["id"]))

    counts = np.bincount(shards_of_groups(groups, 16), minlength=16)
    assert counts.min() > 0.95 * 100_000 / 16
    assert counts.max() < 1.05 * 100_000 / 16


@pytest.mark.parametrize("shard_count", [1, 2, 3, 7, 200, 4096])
def test_shards_have_neighbouring_groups(shard_count: int) -> None:
    """Each shard has a range of groups, and none has more than one group more than another."""
    shards = shards_of_groups(ALL, shard_count)

    counts = np.bincount(shards, minlength=shard_count)
    assert shards.tolist() == sorted(shards.tolist())
    assert counts.max() - counts.min() <= 1


def test_shards_follow_the_formula() -> None:
    """The shard of a group is group * shards / groups, rounded down."""
    groups = np.array([0, 1365, 1366, 2730, 2731, 4095], np.int32)

    assert shards_of_groups(groups, 3).tolist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("shard_count", [0, 4097])
def test_shards_without_a_group_are_refused(shard_count: int) -> None:
    """There is at least one shard, and a group for each."""
    with pytest.raises(ValueError, match="1 to 4096 shards"):
        shards_of_groups(ALL, shard_count)
