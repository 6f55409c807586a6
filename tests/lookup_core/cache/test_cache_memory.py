"""Memory of the row cache: bytes within the bound, a smaller bound, and freed memory."""

import pytest

from lookup_core.cache.row_cache import RowCache
from lookup_core.statistics import CacheStatistics, EvictionReason
from tests.lookup_core.cache.row_caches import KINDS, OVERHEAD_BYTES, CacheKind, evictions

NUMBERS = KINDS["number"]
each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
# Equal hashes make chains too long for thousands of keys.
MANY = {name: kind for name, kind in KINDS.items() if name != "equal hashes"}
each_kind_of_many = pytest.mark.parametrize("kind", MANY.values(), ids=MANY)


def cache_of(kind: CacheKind, count: int) -> RowCache:
    """A cache with the rows 0 to `count`, and room for more."""
    cache = kind.cache(max_bytes=2**20)
    for first in range(0, count, 200):
        kind.fill(cache, range(first, first + 200), now=0.0)
    return cache


@each_kind
@pytest.mark.parametrize(
    ("count", "turns", "room"), [(1, 40, 1_000), (25, 20, 8_000), (300, 4, 20_000)]
)
def test_bytes_never_exceed_the_bound(kind: CacheKind, count: int, turns: int, room: int) -> None:
    """After every fill of any size the cache holds at most its bound, and some rows."""
    cache = kind.cache(max_bytes=OVERHEAD_BYTES + room)

    for turn in range(turns):
        kind.fill(cache, range(turn * count, (turn + 1) * count), now=turn / 10)
        assert cache.bytes <= OVERHEAD_BYTES + room

    assert cache.statistics().rows


@each_kind
@pytest.mark.parametrize("max_bytes", [0, OVERHEAD_BYTES, OVERHEAD_BYTES + 20])
def test_tiny_cache_keeps_no_rows(kind: CacheKind, max_bytes: int) -> None:
    """A cache too small for a row answers that it knows nothing, and evicts nothing."""
    cache = kind.cache(max_bytes=max_bytes)

    for first in (0, 1_000):
        kind.fill(cache, range(first, first + 50), missing=[100], now=0.0)

    if kind.schema.columns.names:
        assert kind.found_at(cache, [0, 49], 0.0) == [None, None]
    if max_bytes < OVERHEAD_BYTES:
        none = dict.fromkeys(EvictionReason, 0)
        assert cache.statistics() == CacheStatistics(0, OVERHEAD_BYTES, max_bytes, none)


@each_kind_of_many
@pytest.mark.parametrize("share", [2, 4])
def test_smaller_bound_holds_at_once(kind: CacheKind, share: int) -> None:
    """With a smaller bound rows leave for pressure, the index shrinks, and the rest is intact."""
    cache, numbers = cache_of(kind, 4_000), range(0, 4_000, 7)
    bound = max(cache.bytes // share, OVERHEAD_BYTES + 25_000)

    cache.set_max_bytes(bound)

    cache.check_invariants()
    statistics = cache.statistics()
    assert statistics.bytes <= statistics.max_bytes == bound
    assert 0 < statistics.rows == 4_000 - statistics.evictions[EvictionReason.PRESSURE]
    found = kind.found_at(cache, numbers, 0.0)
    assert any(row is not None for row in found)
    assert all(row in {None, kind.row(number)} for number, row in zip(numbers, found, strict=True))


@each_kind_of_many
def test_bound_of_zero_empties_the_cache(kind: CacheKind) -> None:
    """With a bound of 0 only the least index is held; with the old bound rows are kept again."""
    cache = cache_of(kind, 1_000)

    cache.set_max_bytes(0)
    kind.fill(cache, [1], missing=[2], now=0.0)

    assert (cache.statistics().rows, cache.bytes) == (0, OVERHEAD_BYTES)
    assert evictions(cache) == {EvictionReason.PRESSURE: 1_000}
    cache.set_max_bytes(2**20)
    kind.fill(cache, range(1_000), now=0.0)
    assert cache.statistics().rows == 1_000


@pytest.mark.parametrize(("more", "shrinks"), [(-1, True), (0, False)])
def test_sparse_index_is_given_back(more: int, shrinks: bool) -> None:  # noqa: FBT001
    """A fill shrinks an index that would still have eight slots or more for each entry."""
    cache = cache_of(NUMBERS, 8_000)
    slots = cache.entries.slot_count
    left = slots // 8 // 8 * 8 + more  # the index has slots in lines of eight
    cache.invalidate(NUMBERS.keys(range(8_000 - left)))

    NUMBERS.fill(cache, [9_000], now=0.0)

    assert (cache.entries.slot_count < slots / 4) == shrinks
    assert cache.peek(NUMBERS.keys([8_000 - left, 7_999, 9_000]), 0.0).is_row.all()
