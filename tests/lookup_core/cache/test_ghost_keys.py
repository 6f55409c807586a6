"""Keys that are remembered without their rows."""

import numpy as np
import pytest

from lookup_core.cache.cached_entries import GhostKeys
from lookup_core.keys.canonical_keys import Hashes


@pytest.fixture
def ghosts() -> GhostKeys:
    """Room for 1024 keys."""
    ghosts = GhostKeys()
    ghosts.resize(1024)
    return ghosts


def some_hashes(count: int, *, seed: int) -> Hashes:
    """Hashes as keys have them."""
    return np.random.default_rng(seed).integers(0, 2**64, count, np.uint64)


def same_bucket(count: int) -> Hashes:
    """Hashes that differ in their fingerprints only."""
    return np.arange(1, count + 1, dtype=np.uint64) << np.uint64(48)


def test_added_keys_are_remembered(ghosts: GhostKeys) -> None:
    """What was added is known, and hardly a stranger."""
    hashes = some_hashes(200, seed=1)

    ghosts.add(hashes)

    assert ghosts.is_in(hashes).all()
    assert ghosts.is_in(some_hashes(10_000, seed=2)).sum() < 10


def test_empty_memory_knows_nobody(ghosts: GhostKeys) -> None:
    """Nothing is remembered at first, not even the key whose fingerprint is nothing."""
    assert not ghosts.is_in(np.zeros(1, np.uint64)).any()
    assert ghosts.is_in(some_hashes(0, seed=1)).tolist() == []


def test_key_without_bits_is_remembered(ghosts: GhostKeys) -> None:
    """Also the hash 0 can be a ghost."""
    ghosts.add(np.zeros(1, np.uint64))

    assert ghosts.is_in(np.zeros(1, np.uint64)).tolist() == [True]


def test_oldest_of_a_bucket_is_forgotten(ghosts: GhostKeys) -> None:
    """A bucket has its last eight keys, also of those that are added together."""
    hashes = same_bucket(11)

    ghosts.add(hashes[:1])
    ghosts.add(hashes[1:])

    assert ghosts.is_in(hashes).tolist() == [False] * 3 + [True] * 8


def test_memory_is_fixed(ghosts: GhostKeys) -> None:
    """Many keys take no more memory than few; about as many as there is room for are known."""
    ghosts.add(some_hashes(5_000, seed=1))
    last = some_hashes(1024, seed=2)

    ghosts.add(last)

    assert ghosts.bytes == 2 * 1024
    assert 800 < ghosts.is_in(last).sum() <= 1024
    assert ghosts.is_in(some_hashes(5_000, seed=1)[:4_000]).sum() < 100


def test_memory_of_any_size_is_used() -> None:
    """The keys are spread over all buckets, also where these are no power of two."""
    ghosts = GhostKeys()
    ghosts.resize(1_000)
    hashes = some_hashes(20_000, seed=1)

    ghosts.add(hashes)

    assert ghosts.bytes == 2 * 1_000
    assert ghosts.is_in(hashes).sum() >= 1_000


def test_resized_memory_begins_anew(ghosts: GhostKeys) -> None:
    """With another size all ghosts are forgotten."""
    hashes = some_hashes(10, seed=1)
    ghosts.add(hashes)

    ghosts.resize(2048)

    assert not ghosts.is_in(hashes).any()
    assert ghosts.bytes == 2 * 2048
