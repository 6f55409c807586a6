"""What is known of a changelog topic for as long as the source is used.

Readers and enumerators come and go with their connections; this must not be forgotten with them.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(slots=True)
class KafkaTopic:
    """Which topic it is, and where the changes that count begin in each partition."""

    begins: Mapping[str, int] | None = None  # {split id: offset}; None: not asked for yet
    id: bytes | None = None  # of the topic whose changes were told last

    def begin(self, split_id: str) -> int:
        """A partition that was not there at first is read from its first message on."""
        return (self.begins or {}).get(split_id, 0)
