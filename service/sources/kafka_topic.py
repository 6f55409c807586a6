"""What is known of a changelog topic for as long as the source is used.

Readers and enumerators come and go with their connections; this must not be forgotten with them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lookup_core.changelog.told_log import ToldLog, level


@dataclass(slots=True)
class KafkaTopic:
    """Which topic it is, and where the changes that count begin in each partition."""

    begins: Mapping[str, int] | None = None  # {split id: offset}; None: not asked for yet
    id: bytes | None = None  # of the topic whose changes were told last
    _logs: dict[str, ToldLog] = field(default_factory=dict)  # {split id: how far it was told}

    def begin(self, split_id: str) -> int:
        """A partition that was not there at first is read from its first message on."""
        return (self.begins or {}).get(split_id, 0)

    def log(self, split_id: str) -> ToldLog:
        """What is noted of a partition; with a new one, keys may move between any of them."""
        if split_id not in self._logs:
            self._logs[split_id] = ToldLog()
            level(self._logs.values())
        return self._logs[split_id]
