"""What goes when the cache of a dimension wants room: within the bytes, the oldest first."""

import pytest

from lookup_core.cache.row_cache import RowCache
from lookup_core.statistics import CacheStatistics, EvictionReason
from tests.lookup_core.cache.row_caches import KINDS, OVERHEAD_BYTES, TTL_S, CacheKind

NUMBERS = KINDS["number"]
FULL_BYTES = 10_500  # of four hundred rows


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> CacheKind:
    """Each kind of dimension."""
    return KINDS[request.param]


def evictions(cache: RowCache) -> dict[EvictionReason, int]:
    """How many entries went, by reason, without the reasons that nothing went for."""
    return {reason: count for reason, count in cache.statistics().evictions.items() if count}


def kept(cache: RowCache, numbers: list[int], now: float = 0.0) -> list[int]:
    """Which of these numbers are known, asked without leaving a trace."""
    probe = cache.peek(NUMBERS.keys(numbers), now)
    return [number for number, is_row in zip(numbers, probe.is_row, strict=True) if is_row]


@pytest.mark.parametrize(("count", "turns"), [(1, 60), (25, 60), (700, 5)])
def test_bytes_never_exceed_the_bound(kind: CacheKind, count: int, turns: int) -> None:
    """However much comes in, the cache never holds more bytes than it may."""
    bound = 2 * OVERHEAD_BYTES + 60 * count
    cache = kind.cache(max_bytes=bound)

    for turn in range(turns):
        kind.fill(cache, range(turn * count, (turn + 1) * count), now=turn / 10)
        assert cache.bytes <= bound

    assert cache.statistics().rows


@pytest.mark.parametrize("max_bytes", [1, OVERHEAD_BYTES, OVERHEAD_BYTES + 20])
def test_tiny_cache_keeps_nothing(kind: CacheKind, max_bytes: int) -> None:
    """A cache too small for a row answers correctly, it only knows nothing."""
    cache = kind.cache(max_bytes=max_bytes)

    kind.fill(cache, range(50), missing=[100], now=0.0)

    assert kind.found(cache, cache.probe(kind.keys([0, 100]), 0.0)) == [None, None]
    none = dict.fromkeys(EvictionReason, 0)
    assert cache.statistics() == CacheStatistics(0, OVERHEAD_BYTES, max_bytes, none)


def test_nothing_goes_for_what_cannot_stay() -> None:
    """Rows too large for an empty cache are not kept, and cost no other row its place."""
    cache = NUMBERS.cache(max_bytes=OVERHEAD_BYTES + 4_000)
    NUMBERS.fill(cache, range(10), now=0.0)

    NUMBERS.fill(cache, range(100, 300), now=1.0)

    assert kept(cache, [*range(10), 100]) == list(range(10))
    assert evictions(cache) == {}


def full_cache() -> RowCache:
    """A cache that is full with the rows 0 to 399, put in this order at the same time."""
    cache = NUMBERS.cache(max_bytes=OVERHEAD_BYTES + FULL_BYTES)
    for number in range(0, 400, 20):
        NUMBERS.fill(cache, range(number, number + 20), now=0.0)
    assert evictions(cache) == {}
    return cache


def test_oldest_rows_go_first() -> None:
    """When room is wanted and no row was asked for, some of the oldest rows go."""
    cache = full_cache()

    NUMBERS.fill(cache, range(500, 520), now=0.0)

    gone = evictions(cache)[EvictionReason.SIZE]
    assert 0 < gone < 100
    assert kept(cache, list(range(520))) == [*range(gone, 400), *range(500, 520)]


def test_asked_rows_get_a_second_chance() -> None:
    """A row that was asked for since it came outlives younger ones that were not."""
    cache = full_cache()
    cache.probe(NUMBERS.keys([0, 2]), 0.0)

    NUMBERS.fill(cache, range(500, 520), now=0.0)

    assert kept(cache, [0, 1, 2, 3]) == [0, 2]


def test_second_chance_is_used_up() -> None:
    """Having been asked for helps once: later the row goes like any other."""
    cache = full_cache()
    cache.probe(NUMBERS.keys([0]), 0.0)

    for number in range(500, 1_400, 20):
        NUMBERS.fill(cache, range(number, number + 20), now=0.0)

    assert kept(cache, [0]) == []


def test_peeking_earns_no_second_chance() -> None:
    """Whoever only looks does not keep a row alive."""
    cache = full_cache()
    cache.peek(NUMBERS.keys([0]), 0.0)

    NUMBERS.fill(cache, range(500, 520), now=0.0)

    assert kept(cache, [0]) == []


def test_rows_all_asked_for_still_go() -> None:
    """When every row was asked for, room is made all the same."""
    cache = full_cache()
    cache.probe(NUMBERS.keys(range(400)), 0.0)

    NUMBERS.fill(cache, range(500, 520), now=0.0)

    assert kept(cache, [500, 519]) == [500, 519]
    assert 0 < evictions(cache)[EvictionReason.SIZE] < 100


def test_expired_rows_get_no_second_chance() -> None:
    """An expired row goes even if it was asked for, and counts as expired."""
    cache = full_cache()
    cache.probe(NUMBERS.keys(range(400)), 0.0)

    NUMBERS.fill(cache, range(500, 520), now=TTL_S)

    assert evictions(cache).keys() == {EvictionReason.EXPIRED}
    assert kept(cache, list(range(520)), TTL_S) == list(range(500, 520))


def test_index_counts_against_the_bound() -> None:
    """Keys without columns take bytes, too: the index does not grow beyond the bound."""
    kind, bound = KINDS["number, no columns"], 3 * OVERHEAD_BYTES
    cache = kind.cache(max_bytes=bound)

    for number in range(0, 20_000, 100):
        kind.fill(cache, range(number, number + 100), now=0.0)

    assert 500 < cache.statistics().rows < 2_000
    assert cache.bytes <= bound
