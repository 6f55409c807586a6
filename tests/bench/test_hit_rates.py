"""How often caches have what is asked for."""

import pytest

from bench.hit_rates import HitRates, KeyTrace, LruKeys, SidelookKeys, hit_rate


def test_roomy_caches_have_the_same_hits() -> None:
    """With room for all keys it does not matter who would go."""
    trace = KeyTrace(1.0, distinct=3_000, batches=20)

    assert hit_rate(SidelookKeys(10_000), trace) == hit_rate(LruKeys(10_000), trace)


def test_scans_hurt_less_than_lru() -> None:
    """On a trace with scans, the cache has more of what is asked for."""
    trace = KeyTrace(1.0, distinct=20_000, batches=120, scan_every=10)

    assert hit_rate(SidelookKeys(2_000), trace) > hit_rate(LruKeys(2_000), trace) + 0.04


@pytest.mark.parametrize(
    ("trace", "lru", "has_fault"),
    [("Zipf 1.0", 0.6, False), ("Zipf, a scan", 0.6, True), ("Zipf, a scan", 0.4, False)],
)
def test_no_better_than_lru_is_a_fault(trace: str, lru: float, *, has_fault: bool) -> None:
    """Only scans must be resisted; elsewhere LRU may win."""
    assert HitRates(trace, 10, lru=lru, s3_fifo=0.5, sidelook=0.5).has_fault is has_fault
