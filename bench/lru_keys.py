"""The least recently used key goes first: what everybody has, to compare with.

Counts keys and has no rows; made to be obviously right, not fast.
"""

from collections import OrderedDict
from collections.abc import Sequence


class LruKeys:
    """A cache of so many keys."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._keys: OrderedDict[int, None] = OrderedDict()  # least recently used first

    def ask(self, batch: Sequence[int]) -> int:
        """How many of the keys were here; all of them are now."""
        return sum(self._ask(key) for key in batch)

    def _ask(self, key: int) -> bool:
        if key in self._keys:
            self._keys.move_to_end(key)
            return True
        if len(self._keys) >= self._capacity:
            self._keys.popitem(last=False)
        self._keys[key] = None
        return False
