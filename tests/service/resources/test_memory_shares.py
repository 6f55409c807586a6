"""Who may hold how much of the memory."""

import pytest

from service.resources.memory_shares import MemoryShares

SHARES = MemoryShares(800)


def test_each_has_its_share() -> None:
    """Keys of streams have a quarter, their answers an eighth, as those of requests, and bodies."""
    assert (SHARES.credit_bytes, SHARES.stream_answer_bytes) == (200, 100)
    assert (SHARES.plain_answer_bytes, SHARES.body_bytes) == (100, 100)


@pytest.mark.parametrize(
    ("wanted_bytes", "scale"), [(0, 1.0), (400, 1.0), (500, 0.8), (1600, 0.25)]
)
def test_caches_have_half_together(wanted_bytes: int, scale: float) -> None:
    """Bounds that add up to more than a half are all scaled down alike."""
    assert SHARES.cache_scale(wanted_bytes) == scale
