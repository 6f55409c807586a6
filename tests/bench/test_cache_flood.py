"""Keys without end."""

import pytest

from bench.cache_flood import Flood, flood_of

MIB = 2**20


def test_flood_stays_within_the_bound() -> None:
    """Many times what fits passes, and the cache never holds more than it may."""
    flood = flood_of(200_000, bound_bytes=MIB)

    assert MIB / 2 < flood.most_cache_bytes <= flood.bound_bytes == MIB
    assert 0 < flood.filling_keys < 60_000
    assert min(flood.resident_bytes) > MIB


@pytest.mark.parametrize(
    ("most_bytes", "last_mib", "has_fault"),
    [(10, 101, False), (11, 101, True), (10, 110, True)],
)
def test_growth_and_excess_are_faults(most_bytes: int, last_mib: int, *, has_fault: bool) -> None:
    """Above the bound, or more memory with each key: both are wrong."""
    resident = (100 * MIB, 100 * MIB, last_mib * MIB)

    flood = Flood(4_000_000, 1.0, most_bytes, 10, 1_000_000, resident, 50 * MIB)

    assert flood.has_fault is has_fault
    assert flood.slope_with_filling > 18  # is told, and no fault: a cache that fills must grow
