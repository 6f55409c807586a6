"""What goes when the cache of a dimension wants room: within the bytes, who was not asked for."""

import numpy as np
import pytest

from lookup_core.cache.row_cache import RowCache
from lookup_core.statistics import CacheStatistics, EvictionReason
from tests.lookup_core.cache.row_caches import (
    KINDS,
    NEGATIVE_TTL_S,
    OVERHEAD_BYTES,
    TTL_S,
    CacheKind,
)

NUMBERS = KINDS["number"]
FULL_BYTES = 10_600  # of four hundred rows


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
    is_known = probe.is_row | probe.is_missing | probe.is_stale
    return [number for number, known in zip(numbers, is_known, strict=True) if known]


def full_cache(*, stay_s: float = 0.0) -> RowCache:
    """A cache that is full with the rows 0 to 399, put in this order at the same time."""
    cache = NUMBERS.cache(max_bytes=OVERHEAD_BYTES + FULL_BYTES, stay_s=stay_s)
    put_one_after_the_other(cache, range(400))
    assert evictions(cache) == {}
    return cache


def put_one_after_the_other(cache: RowCache, numbers: range, now: float = 0.0) -> None:
    """Keep rows, twenty at a time."""
    for first in range(numbers.start, numbers.stop, 20):
        NUMBERS.fill(cache, range(first, min(first + 20, numbers.stop)), now=now)


@pytest.mark.parametrize(("count", "turns"), [(1, 60), (25, 60), (700, 5)])
def test_bytes_never_exceed_the_bound(kind: CacheKind, count: int, turns: int) -> None:
    """However much comes in, the cache never holds more bytes than it may."""
    bound = 2 * OVERHEAD_BYTES + 60 * count
    cache = kind.cache(max_bytes=bound)

    for turn in range(turns):
        kind.fill(cache, range(turn * count, (turn + 1) * count), now=turn / 10)
        assert cache.bytes <= bound

    assert cache.statistics().rows


@pytest.mark.parametrize("max_bytes", [0, 1, OVERHEAD_BYTES, OVERHEAD_BYTES + 20])
def test_tiny_cache_keeps_nothing(kind: CacheKind, max_bytes: int) -> None:
    """A cache too small for a row answers correctly, it only knows nothing."""
    cache = kind.cache(max_bytes=max_bytes)

    for first in (0, 1_000):
        kind.fill(cache, range(first, first + 50), missing=[100], now=0.0)

    if kind.schema.columns.names:
        assert kind.found(cache, cache.probe(kind.keys([0, 49]), 0.0)) == [None, None]
    if max_bytes < OVERHEAD_BYTES:
        none = dict.fromkeys(EvictionReason, 0)
        assert cache.statistics() == CacheStatistics(0, OVERHEAD_BYTES, max_bytes, none)


def test_nothing_goes_for_what_cannot_stay() -> None:
    """One row too large for an empty cache is not kept, and costs no other row its place."""
    kind = KINDS["text"]
    cache = kind.cache(max_bytes=OVERHEAD_BYTES + 2_000)
    kind.fill(cache, range(10), now=0.0)
    large = kind.rows([1]).set_column(1, "text", [["x" * 3_000]])

    cache.fill(kind.keys([100]), np.ones(1, np.bool_), rows=large, read_at=0.0, now=0.0)

    assert cache.peek(kind.keys([*range(10), 100]), 0.0).is_row.tolist() == [True] * 10 + [False]
    assert evictions(cache) == {}


def test_batch_as_large_as_the_cache_passes() -> None:
    """Of a batch that is too large its last rows are kept, and rows that were asked for stay."""
    cache = full_cache()
    hot = list(range(100))
    for _ in range(2):
        cache.probe(NUMBERS.keys(hot), 0.0)
        put_one_after_the_other(cache, range(500, 520))

    NUMBERS.fill(cache, range(1_000, 3_000), now=0.0)

    assert len(kept(cache, hot)) > 50
    assert kept(cache, [1_000, 2_999]) == [2_999]


def test_unasked_rows_go_oldest_first() -> None:
    """When room is wanted and no row was asked for, some of the oldest rows go."""
    cache = full_cache()

    NUMBERS.fill(cache, range(500, 520), now=0.0)

    gone = evictions(cache)[EvictionReason.SIZE]
    assert 0 < gone < 100
    assert kept(cache, list(range(520))) == [*range(gone, 400), *range(500, 520)]


def test_asked_rows_stay_in_the_main_queue() -> None:
    """A row that was asked for since it came outlives younger ones that were not."""
    cache = full_cache()
    cache.probe(NUMBERS.keys([0, 2]), 0.0)

    NUMBERS.fill(cache, range(500, 520), now=0.0)

    assert kept(cache, [0, 1, 2, 3]) == [0, 2]


def test_stale_rows_are_visited_too() -> None:
    """A row that is served stale is asked for like any other."""
    cache = full_cache(stay_s=10.0)
    cache.probe(NUMBERS.keys([0]), TTL_S)

    NUMBERS.fill(cache, range(500, 520), now=TTL_S)

    assert kept(cache, [0, 1], TTL_S) == [0]
    assert evictions(cache).keys() == {EvictionReason.SIZE}


def test_peeking_is_no_visit() -> None:
    """Whoever only looks does not keep a row alive."""
    cache = full_cache()
    cache.peek(NUMBERS.keys([0]), 0.0)

    NUMBERS.fill(cache, range(500, 520), now=0.0)

    assert kept(cache, [0]) == []


def test_rows_no_longer_asked_for_go() -> None:
    """Having been asked for helps a while: when others are asked for instead, the row goes."""
    cache = full_cache()
    cache.probe(NUMBERS.keys([0]), 0.0)

    for first in range(500, 8_000, 20):
        NUMBERS.fill(cache, range(first, first + 20), now=0.0)
        cache.probe(NUMBERS.keys(range(first, first + 20)), 0.0)

    assert kept(cache, [0]) == []


def test_rows_all_asked_for_still_go() -> None:
    """When every row was asked for as often as can be, room is made at once all the same."""
    cache = full_cache()
    for _ in range(5):
        cache.probe(NUMBERS.keys(range(400)), 0.0)

    NUMBERS.fill(cache, range(500, 520), now=0.0)

    assert kept(cache, [500, 519]) == [500, 519]
    assert 0 < evictions(cache)[EvictionReason.SIZE] < 100


def test_scan_does_not_evict_the_hot() -> None:
    """Keys asked for once, ten times as many as there is room for, leave the hot rows alone."""
    cache, hot = full_cache(), list(range(200))
    cache.probe(NUMBERS.keys(hot), 0.0)

    put_one_after_the_other(cache, range(1_000, 5_000))

    assert kept(cache, hot) == hot


def test_key_that_comes_back_is_kept() -> None:
    """A key that went and is read again soon is let in with those that were asked for."""
    cache = full_cache()
    cache.probe(NUMBERS.keys(range(100, 400)), 0.0)
    put_one_after_the_other(cache, range(500, 700))
    assert kept(cache, [0]) == []

    NUMBERS.fill(cache, [0], now=0.0)
    put_one_after_the_other(cache, range(1_000, 1_400))

    assert kept(cache, [0, 1]) == [0]


def test_row_read_anew_keeps_its_queue() -> None:
    """A row of the main queue that is read anew need not prove itself again."""
    cache = full_cache()
    cache.probe(NUMBERS.keys(range(200)), 0.0)
    put_one_after_the_other(cache, range(500, 900))

    NUMBERS.fill(cache, [0], now=0.0)
    put_one_after_the_other(cache, range(1_000, 1_400))

    assert kept(cache, [0]) == [0]


def test_expired_rows_get_no_second_chance() -> None:
    """An expired row goes even if it was asked for, and counts as expired."""
    cache = full_cache()
    cache.probe(NUMBERS.keys(range(400)), 0.0)

    put_one_after_the_other(cache, range(500, 900), now=TTL_S)

    assert evictions(cache)[EvictionReason.EXPIRED] == 400
    assert kept(cache, list(range(400)), TTL_S) == []


def test_expired_means_beyond_the_stay() -> None:
    """What may still be served stale goes for want of room, not as expired."""
    cache = full_cache(stay_s=5.0)

    NUMBERS.fill(cache, range(500, 520), now=TTL_S + 4.75)

    assert evictions(cache).keys() == {EvictionReason.SIZE}


def test_absences_take_a_fifth_at_most() -> None:
    """A flood of keys that do not exist leaves the rows alone; the oldest absences go."""
    cache = full_cache()

    for first in range(1_000, 5_000, 20):
        NUMBERS.fill(cache, [], missing=range(first, first + 20), now=0.0)

    absences = kept(cache, list(range(1_000, 5_000)))
    assert len(kept(cache, list(range(400)))) > 300
    assert 50 < len(absences) < 200
    assert absences[-1] == 4_999


def test_more_absences_than_fit_are_not_kept() -> None:
    """What is more than their share at once is not kept, and nothing goes for it."""
    cache = full_cache()

    NUMBERS.fill(cache, [], missing=range(1_000, 3_000), now=0.0)

    assert kept(cache, list(range(1_000, 3_000))) == []
    assert evictions(cache) == {}


def test_expired_absences_go_before_rows() -> None:
    """Absences whose time is over make room first."""
    cache = full_cache()
    NUMBERS.fill(cache, [], missing=range(1_000, 1_060), now=0.0)
    before, number = evictions(cache), 500

    while evictions(cache) == before:
        NUMBERS.fill(cache, [number], now=NEGATIVE_TTL_S)
        number += 1

    assert evictions(cache) == before | {EvictionReason.EXPIRED: 60}


def test_index_counts_against_the_bound() -> None:
    """Keys without columns take bytes, too: the index does not grow beyond the bound."""
    kind, bound = KINDS["number, no columns"], 3 * OVERHEAD_BYTES
    cache = kind.cache(max_bytes=bound)

    for number in range(0, 20_000, 100):
        kind.fill(cache, range(number, number + 100), now=0.0)

    assert 500 < cache.statistics().rows < 2_000
    assert cache.bytes <= bound
