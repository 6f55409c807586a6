"""The cache of a dimension with another bound than it began with."""

import pytest

from lookup_core.cache.row_cache import RowCache
from lookup_core.statistics import EvictionReason
from tests.lookup_core.cache.row_caches import KINDS, OVERHEAD_BYTES, CacheKind

NUMBERS = KINDS["number"]


@pytest.fixture(params=sorted(set(KINDS) - {"equal hashes"}))
def kind(request: pytest.FixtureRequest) -> CacheKind:
    """Each kind of dimension but that whose chains are too long for so many keys."""
    return KINDS[request.param]


def cache_of(kind: CacheKind, count: int) -> RowCache:
    """A cache with so many rows, which has room for some more."""
    cache = kind.cache(max_bytes=2**20)
    for first in range(0, count, 100):
        kind.fill(cache, range(first, first + 100), now=0.0)
    return cache


@pytest.mark.parametrize("share", [2, 4, 16])
def test_smaller_bound_holds_at_once(kind: CacheKind, share: int) -> None:
    """With less room the cache shrinks with its index, and what went counts as pressure."""
    cache = cache_of(kind, 5_000)
    bound = max(cache.bytes // share, OVERHEAD_BYTES + 25_000)

    cache.set_max_bytes(bound)

    cache.check_invariants()
    statistics = cache.statistics()
    assert statistics.bytes <= statistics.max_bytes == bound
    assert statistics.rows + statistics.evictions[EvictionReason.PRESSURE] == 5_000
    assert statistics.rows > 0


def test_rows_that_stay_are_right(kind: CacheKind) -> None:
    """Whatever is left after shrinking is the row of its key."""
    cache = cache_of(kind, 3_000)
    cache.set_max_bytes(cache.bytes // 3)

    numbers = list(range(0, 3_000, 7))
    found = kind.found(cache, cache.peek(kind.keys(numbers), 0.0))

    assert any(row is not None for row in found)
    assert all(row in {None, kind.row(number)} for number, row in zip(numbers, found, strict=True))


def test_pressure_spares_what_is_asked_for() -> None:
    """Rows that nobody asked for go first."""
    cache = cache_of(NUMBERS, 4_000)
    hot = NUMBERS.keys(range(500))
    cache.probe(hot, 0.0)

    cache.set_max_bytes(cache.bytes // 3)

    assert cache.peek(hot, 0.0).is_row.all()


def test_no_room_at_all_is_an_empty_cache(kind: CacheKind) -> None:
    """With a bound of 0 nothing is held but the least index, and nothing is kept."""
    cache = cache_of(kind, 3_000)

    cache.set_max_bytes(0)
    kind.fill(cache, [1], missing=[2], now=0.0)

    assert (cache.statistics().rows, cache.bytes) == (0, OVERHEAD_BYTES)
    assert kind.found(cache, cache.probe(kind.keys([1, 2]), 0.0)) == [None, None]
    assert cache.statistics().evictions[EvictionReason.PRESSURE] == 3_000


def test_room_comes_back(kind: CacheKind) -> None:
    """With the old bound the cache keeps as before."""
    cache = cache_of(kind, 1_000)
    cache.set_max_bytes(0)

    cache.set_max_bytes(2**20)
    kind.fill(cache, range(1_000), now=0.0)

    assert cache.statistics().rows == 1_000


def test_same_bound_changes_nothing() -> None:
    """A bound that is kept already costs nothing."""
    cache = cache_of(NUMBERS, 1_000)
    before = cache.statistics()

    cache.set_max_bytes(2**20)

    assert cache.statistics() == before


def test_cleared_cache_is_small_again(kind: CacheKind) -> None:
    """Clearing gives the index back, too."""
    cache = cache_of(kind, 5_000)

    cache.clear()

    assert cache.bytes == OVERHEAD_BYTES


def test_sparse_index_is_given_back() -> None:
    """After most keys were invalidated, the next fill lets the index shrink."""
    cache = cache_of(NUMBERS, 8_000)
    cache.invalidate(NUMBERS.keys(range(7_900)))
    before = cache.bytes

    NUMBERS.fill(cache, [9_000], now=0.0)

    assert cache.bytes < before / 4
    assert cache.peek(NUMBERS.keys([7_900, 7_999, 9_000]), 0.0).is_row.all()
