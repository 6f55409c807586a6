"""S3-FIFO key by key, as it was published: what the cache's eviction is measured by.

After Yang, Zhang, Qiu, Yue, Vinayak: "FIFO queues are all you need for cache eviction", SOSP 2023,
algorithm 1. Counts keys and has no rows; made to be obviously right, not fast.
"""

from collections import OrderedDict
from collections.abc import Sequence

_SMALL_SHARE = 0.1
_MOST_VISITS = 3
_VISITS_TO_PROVE = 2


class S3FifoKeys:
    """A cache of so many keys."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._small_capacity = max(int(capacity * _SMALL_SHARE), 1)
        self._small: OrderedDict[int, int] = OrderedDict()  # {key: visits}, oldest first
        self._main: OrderedDict[int, int] = OrderedDict()  # {key: visits}, oldest first
        self._ghosts: OrderedDict[int, None] = OrderedDict()  # oldest first

    def ask(self, batch: Sequence[int]) -> int:
        """How many of the keys were here; all of them are now."""
        return sum(self._ask(key) for key in batch)

    def _ask(self, key: int) -> bool:
        for queue in (self._small, self._main):
            if key in queue:
                queue[key] = min(queue[key] + 1, _MOST_VISITS)
                return True
        while len(self._small) + len(self._main) >= self._capacity:
            self._evict()
        if key in self._ghosts:
            del self._ghosts[key]
            self._main[key] = 0
        else:
            self._small[key] = 0
        return False

    def _evict(self) -> None:
        if len(self._small) >= self._small_capacity:
            self._evict_small()
        else:
            self._evict_main()

    def _evict_small(self) -> None:
        key, visits = self._small.popitem(last=False)
        if visits >= _VISITS_TO_PROVE:
            self._main[key] = 0
            return
        self._ghosts[key] = None
        while len(self._ghosts) > self._capacity - self._small_capacity:
            self._ghosts.popitem(last=False)

    def _evict_main(self) -> None:
        key, visits = self._main.popitem(last=False)
        if visits:
            self._main[key] = visits - 1
