"""How the keys of many lookups become few queries.

Only the wishes; the batcher itself is the core's.
"""

from typing import Annotated

from lookup_core.settings import BatchSettings
from service.config.number import count
from service.config.quantity import duration
from service.config.section import Section, written


class Batch(Section):
    """Size, waiting and concurrency of a dimension's queries; linger 0 sends at once."""

    max_keys: Annotated[int, count(1, 100_000)] = 500
    linger_s: Annotated[float, duration("0ms", "10s")] = written("0ms", alias="linger")
    max_in_flight: Annotated[int, count(1, 1000)] = 8

    def engine_settings(self) -> BatchSettings:
        """The same for the engine."""
        return BatchSettings(
            max_keys=self.max_keys, linger_s=self.linger_s, max_in_flight=self.max_in_flight
        )
