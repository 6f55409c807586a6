"""The least recently used key goes first."""

from bench.hit_rates import LruKeys


def test_asked_key_outlives_older_use() -> None:
    """A key that is asked for again is the last to go."""
    cache = LruKeys(2)

    hits = [cache.ask(batch) for batch in ([1, 2], [1], [3], [1], [2])]

    assert hits == [0, 1, 0, 1, 0]
