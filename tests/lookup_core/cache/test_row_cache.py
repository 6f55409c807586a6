"""Row cache: what a probe finds, and for how long.

Eviction is in `test_cache_eviction.py`, random courses of events in `test_row_cache_model.py`.
"""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_core.cache.row_cache import RowCache
from lookup_core.keys.canonical_keys import CanonicalKeys, SingleKey
from lookup_core.settings import CacheSettings
from lookup_core.statistics import CacheStatistics, EvictionReason
from tests.lookup_core.cache.row_caches import (
    KINDS,
    NEGATIVE_TTL_S,
    OVERHEAD_BYTES,
    TTL_S,
    CacheKind,
    evictions,
)
from tests.lookup_core.hypothesis_runs import few_examples

NUMBERS = KINDS["number"]


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> CacheKind:
    """Each kind of dimension."""
    return KINDS[request.param]


def test_probe_finds_rows_and_missing_keys(kind: CacheKind) -> None:
    """A key is a row, missing or unknown, with age and TTL; a single key hits the same row."""
    cache = kind.cache()
    kind.fill(cache, [1, 2], missing=[3], now=0.0)

    probe = cache.probe(kind.keys([2, 4, 3, 1, 2]), 1.5)

    assert kind.found(cache, probe) == [kind.row(2), None, "missing", kind.row(1), kind.row(2)]
    assert probe.ages_s[[0, 2, 3, 4]].tolist() == [1.5] * 4
    assert probe.ttl_s[[0, 2, 3, 4]].tolist() == [TTL_S, NEGATIVE_TTL_S, TTL_S, TTL_S]
    hits = [kind.hit(cache, number, 1.0) for number in (1, 2, 3, 4)]
    assert hits == [kind.row(1), kind.row(2), None, None]


def test_empty_batches_change_nothing(kind: CacheKind) -> None:
    """An empty cache accepts a fill, a probe, an invalidation and a clear without any key."""
    cache = kind.cache()

    kind.fill(cache, [], now=0.0)

    assert kind.found(cache, cache.probe(kind.keys([]), 0.0)) == []
    assert (cache.invalidate(kind.keys([])), cache.clear(), cache.oldest_age_s(1.0)) == (0, 0, None)
    assert cache.statistics() == CacheStatistics(
        0, cache.bytes, 2**20, dict.fromkeys(EvictionReason, 0)
    )


def test_jitter_shortens_ttl_by_hash() -> None:
    """The TTL, and with it the stale window, ends earlier by the share in the hash's upper bits."""
    cache = NUMBERS.cache(ttl_jitter=0.5, stay_s=2.0)
    keys = CanonicalKeys(np.array([0, 2**63, 2**64 - 1, 2**63 + 1], np.uint64), None)
    has_row = np.array([True, True, True, False])
    cache.fill(
        keys, has_row, rows=NUMBERS.rows([1, 2, 3]), read_at=0.0, now=0.0, settles_later=False
    )

    ttl_s = cache.peek(keys, 0.0).ttl_s.tolist()
    probe = cache.peek(keys, 6.0)
    hits = [cache.hit(SingleKey(int(each), None), 0.0) for each in keys.hashes]

    assert ttl_s == [8.0, 6.0, pytest.approx(4.0, abs=1e-6), 1.5]
    assert ttl_s[2] > 4.0
    assert [hit is not None for hit in hits] == [True, True, True, False]
    assert probe.is_row.tolist() == [True, False, False, False]
    assert probe.is_stale.tolist() == [False, True, True, False]
    ends = [cache.hit(SingleKey(2**63, None), now) is not None for now in (5.75, 6.0)]
    assert ends == [True, False]


def cache_for(ttl_s: float, negative_ttl_s: float = 5.0, stay_s: float = 0.0) -> RowCache:
    """A cache of numbers."""
    settings = CacheSettings(ttl_s=ttl_s, negative_ttl_s=negative_ttl_s, stale_if_error_s=stay_s)
    return RowCache(NUMBERS.schema, settings)


def ages_s(cache: RowCache, read_at: Sequence[float], now: float) -> list[float]:
    """The ages of rows that come into the cache at these times, in this order."""
    for number, each in enumerate(read_at):
        NUMBERS.fill(cache, [number], now=each)
    return cache.peek(NUMBERS.keys(range(len(read_at))), now).ages_s.tolist()


@pytest.mark.parametrize(("ttl_s", "negative_ttl_s"), [(1.0, 1_000.0), (1_000.0, 1.0)])
@pytest.mark.parametrize("stay_s", [0.0, 1_000.0])
def test_ages_are_exact_within_longest_life(
    ttl_s: float, negative_ttl_s: float, stay_s: float
) -> None:
    """Ages are exact until the longest of TTL with stale window and negative TTL."""
    cache = cache_for(ttl_s, negative_ttl_s, stay_s)
    NUMBERS.fill(cache, [], missing=[5], now=0.0)

    assert ages_s(cache, [0.0, 999.0], 999.5) == [999.5, 0.5]
    assert cache.peek(NUMBERS.keys([5]), 999.5).ages_s.tolist() == [999.5]


def test_rows_may_arrive_out_of_order() -> None:
    """A row read before all others has its own age, or one beyond its TTL."""
    first, earlier, far = ages_s(cache_for(600.0), [1e6, 1e6 - 600.0, 0.0], 1e6)

    assert (first, earlier) == (0.0, 600.0)
    assert far > 600.0


@few_examples
@given(st.floats(1e-3, 1e9), st.floats(0, 1e8), st.lists(st.floats(0, 3), min_size=1, max_size=10))
def test_no_row_seems_younger(ttl_s: float, start_s: float, steps_s: list[float]) -> None:
    """An age is exact to a millionth of a TTL or of a second, and never too small."""
    read_at = start_s + np.cumsum(steps_s) * ttl_s
    now = float(read_at[-1])

    found = np.array(ages_s(cache_for(ttl_s, 0.0), read_at.tolist(), now))

    true, rounding_s = now - read_at, (now + 4 * max(ttl_s, 128)) * 1e-15
    error_s, lives = found - true, true <= ttl_s
    assert (error_s[lives] <= max(ttl_s, 1.0) * 1e-6 + rounding_s).all()
    assert (error_s[lives] >= -rounding_s).all()
    assert (found[~lives] >= ttl_s - rounding_s).all()


def test_absences_are_not_kept_without_ttl(kind: CacheKind) -> None:
    """With a negative TTL of 0 only rows are kept."""
    cache = kind.cache(negative_ttl_s=0.0)

    kind.fill(cache, [1], missing=[2], now=0.0)
    kind.fill(cache, [], missing=[3], now=0.0)

    assert kind.found_at(cache, [1, 2, 3], 0.0) == [kind.row(1), None, None]
    assert cache.statistics().rows == 1


@pytest.mark.parametrize("count", [2, 600])
def test_clear_drops_every_entry(kind: CacheKind, count: int) -> None:
    """A cleared cache is as small as a new one, and accepts rows."""
    cache = kind.cache()
    kind.fill(cache, range(count), missing=[1_000], now=0.0)

    assert cache.clear() == count + 1

    assert evictions(cache) == {EvictionReason.INVALIDATED: count + 1}
    assert cache.bytes == OVERHEAD_BYTES
    assert kind.found_at(cache, [0, 1, 1_000], 0.0) == [None] * 3
    kind.fill(cache, [1], now=0.0)
    assert cache.statistics().rows == 1


def test_oldest_age_ignores_removed_entries() -> None:
    """The oldest age is that of the oldest entry inside, visited or missing alike."""
    cache = NUMBERS.cache()
    NUMBERS.fill(cache, [1], now=10.0)
    NUMBERS.fill(cache, [2], now=11.0)
    NUMBERS.fill(cache, [], missing=[3], now=12.0)
    cache.probe(NUMBERS.keys([2]), 12.0)

    ages_s = []
    for number in (1, 2, 3):
        ages_s.append(cache.oldest_age_s(13.0))
        cache.invalidate(NUMBERS.keys([number]))

    assert [*ages_s, cache.oldest_age_s(13.0)] == [3.0, 2.0, 1.0, None]
