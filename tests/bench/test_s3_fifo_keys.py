"""S3-FIFO, key by key."""

from bench.hit_rates import S3FifoKeys


def test_scan_leaves_hot_keys() -> None:
    """Keys that were asked for twice since they came survive a scan ten times the cache."""
    cache, hot = S3FifoKeys(20), list(range(10))
    for _ in range(3):
        cache.ask(hot)

    cache.ask(range(100, 300))

    assert cache.ask(hot) == 10


def test_ghost_comes_back_into_main() -> None:
    """A key that went lately and comes back is not taken for one of a scan again."""
    cache = S3FifoKeys(20)
    cache.ask([*range(100, 120), 1])
    cache.ask(range(200, 221))

    cache.ask([100, *range(300, 310), 1])
    cache.ask(range(400, 412))

    assert cache.ask([1]) == 1


def test_unvisited_keys_of_main_go() -> None:
    """What proved itself once and is not asked for any more goes at last."""
    cache = S3FifoKeys(20)
    for _ in range(3):
        cache.ask(range(10))

    for first in range(100, 2_000, 19):
        for _ in range(3):
            cache.ask(range(first, first + 19))

    assert cache.ask(range(10)) == 0
