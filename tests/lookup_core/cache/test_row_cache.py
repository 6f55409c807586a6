"""The cache of a dimension: what it knows, and for how long."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.cache.row_cache import RowCache
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.keys.canonical_keys import CanonicalKeys, canonical_keys
from lookup_core.settings import CacheSettings
from lookup_core.statistics import CacheStatistics, EvictionReason
from tests.lookup_core.cache.row_caches import (
    KINDS,
    NEGATIVE_TTL_S,
    TTL_S,
    CacheKind,
)

NUMBERS = KINDS["number"]
NONE = dict.fromkeys(EvictionReason, 0)


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> CacheKind:
    """Each kind of dimension."""
    return KINDS[request.param]


@pytest.fixture
def cache() -> Iterator[RowCache]:
    """A roomy cache of numbers."""
    cache = NUMBERS.cache()
    yield cache
    cache.check_invariants()


def evictions(cache: RowCache) -> dict[EvictionReason, int]:
    """How many entries went, by reason, without the reasons that nothing went for."""
    return {reason: count for reason, count in cache.statistics().evictions.items() if count}


def kept(cache: RowCache, numbers: list[int], now: float = 0.0) -> list[int]:
    """Which of these numbers are known, asked without leaving a trace."""
    probe = cache.peek(NUMBERS.keys(numbers), now)
    is_known = probe.is_row | probe.is_missing
    return [number for number, known in zip(numbers, is_known, strict=True) if known]


def test_rows_and_absences_are_found(kind: CacheKind) -> None:
    """A key is known as a row, as missing, or not at all; asked twice, it is found twice."""
    cache = kind.cache()
    kind.fill(cache, [1, 2], missing=[3], now=0.0)

    probe = cache.probe(kind.keys([2, 4, 3, 1, 2]), 1.5)

    assert kind.found(cache, probe) == [kind.row(2), None, "missing", kind.row(1), kind.row(2)]
    assert probe.ages_s[[0, 2, 3, 4]].tolist() == [1.5] * 4
    assert probe.ttl_s[[0, 2, 3, 4]].tolist() == [TTL_S, NEGATIVE_TTL_S, TTL_S, TTL_S]


def test_no_keys_are_asked_and_kept(kind: CacheKind) -> None:
    """Nothing may be asked, kept and forgotten, also of an empty cache."""
    cache = kind.cache()

    kind.fill(cache, [], now=0.0)

    assert kind.found(cache, cache.probe(kind.keys([]), 0.0)) == []
    assert (cache.invalidate(kind.keys([])), cache.clear(), cache.oldest_age_s(1.0)) == (0, 0, None)
    assert cache.statistics() == CacheStatistics(0, cache.bytes, 2**20, NONE)


@pytest.mark.parametrize(("number", "ttl_s"), [(1, TTL_S), (2, NEGATIVE_TTL_S)])
def test_entry_expires_at_its_age(cache: RowCache, number: int, ttl_s: float) -> None:
    """An entry is expired at age >= its time to live, not after it; absences have their own."""
    NUMBERS.fill(cache, [1], missing=[2], now=100.0)

    assert kept(cache, [number], now=100.0 + ttl_s - 0.25) == [number]
    assert kept(cache, [number], now=100.0 + ttl_s) == []


def test_absences_are_not_kept_without_ttl(kind: CacheKind) -> None:
    """With a negative time to live of 0 only rows are kept."""
    cache = kind.cache(negative_ttl_s=0.0)

    kind.fill(cache, [1], missing=[2], now=0.0)
    kind.fill(cache, [], missing=[3], now=0.0)

    found = kind.found(cache, cache.probe(kind.keys([1, 2, 3]), 0.0))
    assert found == [kind.row(1), None, None]
    assert cache.statistics().rows == 1


def test_read_absence_forgets_older_row(kind: CacheKind) -> None:
    """A row that was found to be gone is not served, even if absences are not kept."""
    cache = kind.cache(negative_ttl_s=0.0, stay_s=10.0)
    kind.fill(cache, [1, 2], now=0.0)

    kind.fill(cache, [], missing=[1], now=TTL_S)

    assert kind.found(cache, cache.probe(kind.keys([1, 2]), TTL_S)) == [None, kind.row(2)]
    assert evictions(cache) == {EvictionReason.REPLACED: 1}


def test_expired_row_is_stale_then_gone(kind: CacheKind) -> None:
    """A row whose time is over is told apart from a fresh one until its stay is over, too."""
    cache = kind.cache(stay_s=3.0)
    kind.fill(cache, [1], now=0.0)

    probes = [cache.peek(kind.keys([1]), now) for now in (7.75, 8.0, 10.75, 11.0)]

    assert [bool(probe.is_row[0]) for probe in probes] == [True, False, False, False]
    assert [bool(probe.is_stale[0]) for probe in probes] == [False, True, True, False]
    assert kind.found(cache, probes[2]) == [kind.row(1)]
    assert probes[2].ttl_s.tolist() == [TTL_S]


def test_absences_are_not_stale() -> None:
    """However long rows stay, an absence is known for its own time only."""
    cache = NUMBERS.cache(stay_s=100.0)
    NUMBERS.fill(cache, [], missing=[1], now=0.0)

    probe = cache.peek(NUMBERS.keys([1]), NEGATIVE_TTL_S)

    assert (probe.is_missing[0], probe.is_stale[0]) == (False, False)


def test_ttl_differs_by_key_within_jitter(kind: CacheKind) -> None:
    """Rows that were read together expire one after the other, each at the time that it tells."""
    cache = kind.cache(ttl_jitter=0.5)
    kind.fill(cache, range(32), now=0.0)
    ttl_s = cache.peek(kind.keys(range(32)), 0.0).ttl_s

    probe = cache.peek(kind.keys(range(32)), TTL_S * 0.75)

    assert (ttl_s > TTL_S / 2).all()
    assert (ttl_s <= TTL_S).all()
    assert probe.is_row.tolist() == (ttl_s > TTL_S * 0.75).tolist()


def test_newer_entry_replaces_older(kind: CacheKind) -> None:
    """A row can follow an absence and the other way round; there is one entry a key."""
    cache = kind.cache()
    kind.fill(cache, [1], missing=[2], now=0.0)

    kind.fill(cache, [2], missing=[1], now=1.0)

    probe = cache.probe(kind.keys([1, 2]), 1.0)
    assert kind.found(cache, probe) == ["missing", kind.row(2)]
    assert probe.ages_s.tolist() == [0.0, 0.0]
    assert (cache.statistics().rows, evictions(cache)) == (2, {EvictionReason.REPLACED: 2})


def test_composite_keys_do_not_run_together() -> None:
    """("ab", "c") is not ("a", "bc")."""
    key = pa.schema({"a": pa.utf8(), "b": pa.utf8()})
    columns = pa.schema({"n": pa.int64()})
    cache = RowCache(DimensionSchema(key, columns), CacheSettings())
    pairs = pa.record_batch([pa.array(["ab", "a"]), pa.array(["c", "bc"])], schema=key)
    row = pa.record_batch([pa.array([7])], schema=columns)

    cache.fill(canonical_keys(pairs.slice(0, 1)), np.array([True]), rows=row, read_at=0.0, now=0.0)

    assert cache.probe(canonical_keys(pairs), 0.0).is_row.tolist() == [True, False]


def test_equal_hashes_do_not_mix_keys() -> None:
    """Different keys with the same hash have each their own row, and go each alone."""
    kind = KINDS["text"]
    cache, keys = kind.cache(), kind.keys([1, 2, 3])
    keys = CanonicalKeys(np.full(3, 2**64 - 1, np.uint64), keys.parts)
    has_row = np.ones(2, np.bool_)
    cache.fill(
        keys.take(np.array([0, 1], np.int32)), has_row, rows=kind.rows([1, 2]), read_at=0.0, now=0.0
    )

    assert kind.found(cache, cache.probe(keys, 0.0)) == [kind.row(1), kind.row(2), None]
    assert cache.invalidate(keys.take(np.array([1, 2], np.int32))) == 1
    assert kind.found(cache, cache.probe(keys, 0.0)) == [kind.row(1), None, None]


def test_equal_hashes_do_not_mix_segments() -> None:
    """Keys are told apart also where the keys beside them stand in other segments."""
    kind = KINDS["text"]
    hashes = np.array([0, 1, 1], np.uint64)  # the third meets the second
    cache, keys = kind.cache(), CanonicalKeys(hashes, kind.keys([1, 2, 3]).parts)
    for at, others in enumerate((range(10, 20), range(20, 22))):
        kind.fill(cache, others, now=0.0)
        own = keys.take(np.array([at], np.int32))
        cache.fill(own, np.ones(1, np.bool_), rows=kind.rows([at + 1]), read_at=0.0, now=0.0)

    asked = keys.take(np.array([2, 0, 1], np.int32))

    assert kind.found(cache, cache.probe(asked, 0.0)) == [None, kind.row(1), kind.row(2)]


def test_columns_come_as_asked(cache: RowCache) -> None:
    """Rows come with the columns asked for, in that order, whatever their names are."""
    NUMBERS.fill(cache, [5], now=0.0)
    slots = cache.probe(NUMBERS.keys([5]), 0.0).slots

    assert cache.rows(slots, ["text", "position"]).rows.to_pylist() == [
        {"text": "number 5", "position": 5}
    ]
    assert cache.rows(slots, []).rows.num_rows == 1


def test_invalidated_keys_are_forgotten(kind: CacheKind) -> None:
    """Invalidation forgets rows and absences, counts each once, and leaves the others."""
    cache = kind.cache()
    kind.fill(cache, [1, 2], missing=[3], now=0.0)

    assert cache.invalidate(kind.keys([3, 1, 9, 1])) == 2

    assert kind.found(cache, cache.probe(kind.keys([1, 2, 3]), 0.0)) == [None, kind.row(2), None]
    assert evictions(cache) == {EvictionReason.INVALIDATED: 2}
    cache.check_invariants()


def test_forgotten_slot_shows_no_old_row(kind: CacheKind) -> None:
    """A key that takes the place of a forgotten one does not answer for it."""
    cache = kind.cache()
    kind.fill(cache, [1, 2], now=0.0)
    cache.invalidate(kind.keys([1]))

    kind.fill(cache, [3], missing=[4], now=1.0)

    found = kind.found(cache, cache.probe(kind.keys([1, 2, 3, 4]), 1.0))
    assert found == [None, kind.row(2), kind.row(3), "missing"]


def test_clear_forgets_everything(kind: CacheKind) -> None:
    """Clearing forgets all, counts it, and the cache goes on."""
    cache = kind.cache()
    kind.fill(cache, [1, 2], missing=[3], now=0.0)

    assert cache.clear() == 3

    assert kind.found(cache, cache.probe(kind.keys([1, 2, 3]), 0.0)) == [None] * 3
    assert evictions(cache) == {EvictionReason.INVALIDATED: 3}
    kind.fill(cache, [1], now=0.0)
    assert cache.statistics().rows == 1


def test_oldest_age_bounds_staleness(cache: RowCache) -> None:
    """The oldest entry's age says how stale an answer can be at most."""
    NUMBERS.fill(cache, [1], now=10.0)
    NUMBERS.fill(cache, [2], now=12.0)

    assert cache.oldest_age_s(13.0) == 3.0
    cache.invalidate(NUMBERS.keys([1]))
    assert cache.oldest_age_s(13.0) == 1.0


def test_one_row_is_found_alone(kind: CacheKind) -> None:
    """Whatever keys are like: the row of the key that is asked for, and nothing for an absence."""
    cache = kind.cache()
    kind.fill(cache, [1, 2], missing=[3], now=0.0)

    found = [kind.hit(cache, number, 1.0) for number in (1, 2, 3, 4)]

    assert found == [kind.row(1), kind.row(2), None, None]


def test_hit_counts_as_a_visit(cache: RowCache) -> None:
    """A row that is asked for alone is as visited as one that is asked for among others."""
    NUMBERS.fill(cache, [1, 2], now=0.0)
    states, slots = cache._entries.states, cache._entries.find(NUMBERS.keys([1, 2]))

    for _ in range(5):
        assert NUMBERS.hit(cache, 1, 1.0) == NUMBERS.row(1)

    assert states.visits(states.of(slots)).tolist() == [3, 0]


def test_bookmark_leads_back_to_a_row(cache: RowCache) -> None:
    """A row that was a hit is one again by its bookmark, with its age, until its time is over."""
    NUMBERS.fill(cache, [1], now=0.0)
    hit = cache.hit(NUMBERS.key(1), 1.0)

    assert hit is not None
    ages_s = [cache.revisit(hit.bookmark, now) for now in (2.0, TTL_S - 1, TTL_S)]

    assert ages_s == [2.0, TTL_S - 1, None]


def test_revisit_counts_as_a_visit(cache: RowCache) -> None:
    """A row that is found by its bookmark is as visited as one that is asked for by its key."""
    NUMBERS.fill(cache, [1, 2], now=0.0)
    states, slots = cache._entries.states, cache._entries.find(NUMBERS.keys([1, 2]))
    hit = cache.hit(NUMBERS.key(1), 1.0)

    assert hit is not None
    cache.revisit(hit.bookmark, 1.0)

    assert states.visits(states.of(slots)).tolist() == [2, 0]


def test_bookmark_of_a_replaced_row_is_void(cache: RowCache) -> None:
    """A newer row of the same key is another row; so is one that comes after an invalidation."""
    NUMBERS.fill(cache, [1, 2], now=0.0)
    hits = [cache.hit(NUMBERS.key(number), 1.0) for number in (1, 2)]
    NUMBERS.fill(cache, [1], now=2.0)
    cache.invalidate(NUMBERS.keys([2]))

    found = [cache.revisit(hit.bookmark, 2.0) for hit in hits if hit is not None]

    assert found == [None, None]
