"""Keys that a store has refused, for a while: they are not asked again in every batch.

Not a cache: it says nothing about rows, and what is in it ends by itself.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from lookup_core.keys.canonical_keys import KeyId

_SECONDS = 30.0
_MOST_KEYS = 10_000


class Quarantine:
    """Keys by id, the oldest first; `now` is monotonic seconds."""

    def __init__(self) -> None:
        self._until: dict[KeyId, float] = {}

    def __len__(self) -> int:
        return len(self._until)

    def add(self, key_id: KeyId, now: float) -> None:
        """Keep a key out from now on; the oldest goes when there are too many."""
        self._until.pop(key_id, None)
        self._until[key_id] = now + _SECONDS
        if len(self._until) > _MOST_KEYS:
            del self._until[next(iter(self._until))]

    def is_in(self, key_ids: Sequence[KeyId], now: float) -> npt.NDArray[np.bool_]:
        """Which of these are kept out; cheap while none are."""
        self._drop_expired(now)
        if not self._until:
            return np.zeros(len(key_ids), np.bool_)
        return np.array([key_id in self._until for key_id in key_ids], np.bool_)

    def until(self, key_id: KeyId, now: float) -> float | None:
        """Until when this key is kept out; None if it is not."""
        until = self._until.get(key_id)
        return None if until is None or until <= now else until

    def remove(self, key_ids: Iterable[KeyId]) -> None:
        """Let keys in again; harmless for others."""
        if self._until:
            for key_id in key_ids:
                self._until.pop(key_id, None)

    def clear(self) -> None:
        """Let all keys in again."""
        self._until.clear()

    def _drop_expired(self, now: float) -> None:
        # In the order of their ends, as all stay equally long.
        while self._until and next(iter(self._until.values())) <= now:
            del self._until[next(iter(self._until))]
