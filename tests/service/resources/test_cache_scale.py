"""Caches that get less than they may."""

import structlog

from service.resources.memory_shares import MemoryShares, cache_scale

SHARES = MemoryShares(800)


def test_smaller_caches_are_told() -> None:
    """Of caches that are too much together each that was written is told with both sizes."""
    with structlog.testing.capture_logs() as logs:
        scale = cache_scale({"a": 600, "b": 100, "c": 100}, SHARES, written=["a", "b"])

    told = [(line["dimension"], line["max_bytes"], line["gets_bytes"]) for line in logs]
    assert (scale, told) == (0.5, [("a", 600, 300), ("b", 100, 50)])


def test_whole_caches_are_not_told() -> None:
    """Caches that fit get what they may, and nothing is said."""
    with structlog.testing.capture_logs() as logs:
        scale = cache_scale({"a": 300, "b": 100}, SHARES, written=["a", "b"])

    assert (scale, logs) == (1.0, [])
