"""Keys that are in a batch more than once."""

import numpy as np
import pytest

from lookup_core.keys.canonical_keys import CanonicalKeys
from lookup_core.table.reload import key_repeats, last_of_each
from tests.lookup_core.cache.row_caches import KINDS, CacheKind


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> CacheKind:
    """Each kind of dimension, also with keys of equal hashes."""
    return KINDS[request.param]


def test_repeated_keys_are_all_named(kind: CacheKind) -> None:
    """Each of several equal keys is a repeat, whatever the hashes of the others."""
    keys = kind.keys([1, 2, 1, 3, 4, 3, *range(10, 100)])

    assert np.flatnonzero(key_repeats(keys)).tolist() == [0, 2, 3, 5]


def test_distinct_keys_repeat_nowhere(kind: CacheKind) -> None:
    """Keys that differ are no repeats, also none at all."""
    assert not key_repeats(kind.keys(range(100))).any()
    assert key_repeats(kind.keys([])).tolist() == []


def test_last_place_of_each_counts(kind: CacheKind) -> None:
    """Of equal keys the last one is chosen, and the order stays."""
    assert last_of_each(kind.keys([7, 8, 7, 9, 8])).tolist() == [2, 3, 4]
    assert last_of_each(kind.keys([])).tolist() == []


def test_equal_hashes_are_no_repeats() -> None:
    """Keys with bytes of their own are compared by these."""
    keys = KINDS["text"].keys([1, 2])
    same_hash = CanonicalKeys(np.zeros(2, np.uint64), keys.parts)

    assert not key_repeats(same_hash).any()
    assert last_of_each(same_hash).tolist() == [0, 1]
