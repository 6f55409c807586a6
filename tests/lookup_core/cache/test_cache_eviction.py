"""S3-FIFO eviction: which entries leave a full cache first, and for which reason.

How many bytes the cache holds is in `test_cache_memory.py`.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from lookup_core.cache.cached_entries import GhostKeys
from lookup_core.cache.row_cache import RowCache
from lookup_core.keys.canonical_keys import Hashes
from lookup_core.statistics import EvictionReason
from tests.lookup_core.cache.row_caches import (
    KINDS,
    NEGATIVE_TTL_S,
    OVERHEAD_BYTES,
    TTL_S,
    evictions,
)

NUMBERS = KINDS["number"]
ROWS_BYTES = 10_600  # of four hundred rows


def kept(cache: RowCache, numbers: Sequence[int], now: float = 0.0) -> list[int]:
    """Which of these numbers have an entry; no visit."""
    probe = cache.peek(NUMBERS.keys(numbers), now)
    is_known = probe.is_row | probe.is_missing | probe.is_stale
    return np.array(numbers)[is_known].tolist()


def put(cache: RowCache, numbers: range, *, now: float = 0.0) -> None:
    """Keep rows, twenty at a time."""
    for first in range(numbers.start, numbers.stop, 20):
        some = range(first, min(first + 20, numbers.stop))
        keys, has_row = NUMBERS.keys(some), np.ones(len(some), np.bool_)
        cache.fill(
            keys, has_row, rows=NUMBERS.rows(some), read_at=now, now=now, settles_later=False
        )
    cache.check_invariants()


def full_cache(*, stay_s: float = 0.0) -> RowCache:
    """A full cache of the rows 0 to 399, put in this order at the same time."""
    cache = NUMBERS.cache(max_bytes=OVERHEAD_BYTES + ROWS_BYTES, stay_s=stay_s)
    put(cache, range(400))
    assert evictions(cache) == {}
    return cache


@pytest.mark.parametrize(
    ("visit", "count"),
    [
        (lambda cache: cache.peek(NUMBERS.keys([0]), 1.0), 0),
        (lambda cache: cache.probe(NUMBERS.keys([0, 0]), 1.0), 1),
        (lambda cache: cache.probe(NUMBERS.keys([0]), TTL_S), 1),  # stale
        (lambda cache: [cache.probe(NUMBERS.keys([0]), 1.0) for _ in range(5)], 3),
        (lambda cache: cache.hit(NUMBERS.key(0), 1.0), 1),
        (lambda cache: [cache.hit(NUMBERS.key(0), 1.0) for _ in range(5)], 3),
    ],
    ids=["peek", "probe", "stale probe", "probes", "hit", "hits"],
)
def test_reads_count_as_visits(visit: Callable[[RowCache], object], count: int) -> None:
    """Probe and hit count one visit each, three at most; a peek counts none."""
    cache = NUMBERS.cache(stay_s=10.0)
    NUMBERS.fill(cache, [0, 1], now=0.0)

    visit(cache)

    entries = cache.entries
    words = entries.states.table.words_of(entries.find(NUMBERS.keys([0, 1])))
    assert entries.states.table.visits(words).tolist() == [count, 0]


def test_visits_wear_off_in_main_queue() -> None:
    """A visited row survives one round of the main queue; it leaves in the next."""
    cache, is_kept = full_cache(), {}
    cache.probe(NUMBERS.keys([0, 1]), 0.0)  # both move to the main queue

    for first in range(500, 2_000, 20):
        put(cache, range(first, first + 20))
        cache.probe(NUMBERS.keys([*range(first, first + 20), *([0] if first == 600 else [])]), 0.0)
        is_kept[first] = kept(cache, [0, 1])

    assert (is_kept[600], is_kept[1_000], is_kept[1_980]) == ([0, 1], [0], [])


def test_scan_does_not_evict_visited_rows() -> None:
    """Keys read once, several times as many as fit, leave the visited rows in the cache."""
    cache = full_cache()
    cache.probe(NUMBERS.keys(range(200)), 0.0)

    put(cache, range(1_000, 3_000))

    assert kept(cache, range(200)) == [*range(200)]


def test_small_queue_is_a_tenth() -> None:
    """Among rows that were visited, new rows have about a tenth of the room."""
    cache = full_cache()
    cache.probe(NUMBERS.keys(range(400)), 0.0)

    put(cache, range(1_000, 1_400))

    assert 0.05 < len(kept(cache, range(1_000, 1_400))) / cache.statistics().rows < 0.15


def test_ghost_enters_the_main_queue() -> None:
    """A key that is read again soon after its eviction survives a scan; a new key does not."""
    cache = full_cache()
    cache.probe(NUMBERS.keys(range(100, 400)), 0.0)
    put(cache, range(500, 700))
    assert kept(cache, [0]) == []

    NUMBERS.fill(cache, [0, 900], now=0.0)
    put(cache, range(1_000, 1_400))

    assert kept(cache, [0, 1, 900]) == [0]


def test_reread_row_keeps_its_queue() -> None:
    """A row of the main queue that is read again stays in the main queue."""
    cache = full_cache()
    cache.probe(NUMBERS.keys(range(200)), 0.0)
    put(cache, range(500, 900))

    NUMBERS.fill(cache, [0], now=0.0)
    put(cache, range(1_000, 1_400))

    assert kept(cache, [0]) == [0]


def test_oversized_batch_keeps_its_last_rows() -> None:
    """Of a batch larger than the cache the last rows stay, the others leave ghosts."""
    cache = full_cache()
    hot = range(100)
    for _ in range(2):
        cache.probe(NUMBERS.keys(hot), 0.0)
        put(cache, range(500, 520))

    NUMBERS.fill(cache, range(1_000, 3_000), now=0.0)

    rows = kept(cache, range(1_000, 3_000))
    assert len(kept(cache, hot)) > 50
    assert rows == [*range(3_000 - len(rows), 3_000)]
    assert 10 < len(rows) < 100
    passed = NUMBERS.keys(range(2_850, 2_900))
    assert cache.entries.ghosts.is_in(passed.hashes).mean() > 0.9


def test_expired_rows_get_no_second_chance() -> None:
    """An expired row leaves even if it was visited, and counts as expired."""
    cache = full_cache()
    cache.probe(NUMBERS.keys(range(400)), 0.0)

    put(cache, range(500, 900), now=TTL_S)

    assert evictions(cache)[EvictionReason.EXPIRED] == 400
    assert kept(cache, range(400), TTL_S) == []


def test_negative_entries_take_a_fifth() -> None:
    """A flood of missing keys takes a fifth of the bound; its oldest entries leave."""
    cache = full_cache()

    for first in range(1_000, 3_000, 20):
        NUMBERS.fill(cache, [], missing=range(first, first + 20), now=0.0)

    entries = kept(cache, range(1_000, 3_000))
    assert len(kept(cache, range(400))) > 300
    assert 100 < len(entries) < 200
    assert entries == [*range(3_000 - len(entries), 3_000)]


def test_excess_negative_entries_are_dropped() -> None:
    """A batch of more missing keys than their share is not kept, and evicts no entry."""
    cache = full_cache()

    NUMBERS.fill(cache, [], missing=range(1_000, 3_000), now=0.0)

    assert kept(cache, range(1_000, 3_000)) == []
    assert evictions(cache) == {}


def test_expired_negative_entries_leave_first() -> None:
    """Expired negative entries make room before any row leaves."""
    cache = full_cache()
    NUMBERS.fill(cache, [], missing=range(1_000, 1_060), now=0.0)
    before, number = evictions(cache), 500

    while evictions(cache) == before:
        NUMBERS.fill(cache, [number], now=NEGATIVE_TTL_S)
        number += 1

    after = evictions(cache)
    assert after.pop(EvictionReason.EXPIRED) > 0
    assert after == {reason: before[reason] for reason in after}


def ghosts_of(key_count: int = 1_024) -> GhostKeys:
    """An empty ghost queue."""
    ghosts = GhostKeys()
    ghosts.resize(key_count)
    return ghosts


def some_hashes(count: int, *, seed: int) -> Hashes:
    """Hashes as keys have them."""
    return np.random.default_rng(seed).integers(0, 2**64, count, np.uint64)


def test_ghost_bucket_keeps_last_eight() -> None:
    """A bucket keeps its last eight keys, also of one batch, and a key whose hash is 0."""
    ghosts, one_bucket = ghosts_of(), np.arange(11, dtype=np.uint64) << np.uint64(48)
    assert not ghosts.is_in(one_bucket).any()

    ghosts.add_keys(one_bucket[2:3])
    ghosts.add_keys(one_bucket[3:])
    ghosts.add_keys(one_bucket[:1])

    assert ghosts.is_in(one_bucket).tolist() == [True, True] + [False] * 2 + [True] * 7


@pytest.mark.parametrize("key_count", [1_000, 1_024])
def test_ghost_memory_is_fixed(key_count: int) -> None:
    """The ghost queue takes two bytes a key, and remembers about as many keys as it may."""
    ghosts = ghosts_of(key_count)
    former, last, strangers = (
        some_hashes(count, seed=count) for count in (5_000, key_count, 9_999)
    )
    ghosts.add_keys(former)

    ghosts.add_keys(last)

    assert ghosts.buckets.nbytes == 2 * key_count
    assert 0.8 * key_count < ghosts.is_in(last).sum()
    assert ghosts.is_in(former[:4_000]).sum() < 100
    assert ghosts.is_in(strangers).sum() < 20
    ghosts.resize(2_048)
    assert ghosts.buckets.nbytes == 2 * 2_048
    assert not ghosts.is_in(last).any()
