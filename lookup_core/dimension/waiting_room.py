"""How many keys may wait for a store, and what makes room for others.

Counts only: who waits for what stands in `waiting_lookups`, what is queued in `batcher`.
"""

from dataclasses import dataclass

from lookup_core.dimension.batcher import Batcher
from lookup_core.dimension.waiting_lookups import WaitingLookups
from lookup_core.errors import ErrorCode, Overloaded
from lookup_core.settings import DimensionSettings

_RETRY_S = 1.0
_DESERTED_SHARE = 10  # of the keys that may wait; few of them cost less than to look for them


@dataclass(frozen=True, slots=True)
class WaitingRoom:
    """The bound of one dimension."""

    settings: DimensionSettings
    waiting: WaitingLookups
    batcher: Batcher

    def has_room(self, keys: int) -> bool:
        """Whether so many keys more may wait."""
        return self._held_keys + keys <= self.settings.max_waiting_keys

    def admit(self, keys: int) -> None:
        """Raise Overloaded if they may not."""
        if not self.has_room(keys):
            raise Overloaded(
                ErrorCode.OVERLOADED,
                f"{self._held_keys} keys wait for {self.settings.name}; at most"
                f" {self.settings.max_waiting_keys} may",
                retry_after_s=_RETRY_S,
            )

    def drop_deserted(self) -> None:
        """Forget queued keys that nobody waits for any more, once they are many.

        They would add up while no query is sent, and keep newcomers out.
        """
        slack = self.settings.max_waiting_keys // _DESERTED_SHARE
        if len(self.batcher) > 2 * self.waiting.keys + slack:
            self.batcher.drop_deserted()

    @property
    def _held_keys(self) -> int:
        # Queued keys take memory until their turn, also when nobody waits for them any more.
        return max(self.waiting.keys, len(self.batcher))
