"""A backend in which one row arrives later than the lookups of it.

Late by the count of queries, not by the clock.
"""

import pyarrow as pa
import pyarrow.compute as pc

from service.connectors.memory.backend import FakeBackend
from service.connectors.ports.backend import FetchedRows
from tests.service.engine.running import ROWS, SCHEMA

LATE_KEY = 8  # Bert


class LateBackend(FakeBackend):
    """Bert's row is not there in the first fetches."""

    def __init__(self, *, misses: int) -> None:
        super().__init__(ROWS, SCHEMA)
        self._misses = misses
        self._early = FakeBackend(ROWS.filter(pc.field("id") != LATE_KEY), SCHEMA)

    async def fetch(self, keys: pa.RecordBatch, *, timeout_s: float) -> FetchedRows:
        """The rows that are there by now."""
        number = len(self.batches)
        found = await super().fetch(keys, timeout_s=timeout_s)
        return found if number >= self._misses else await self._early.fetch(keys, timeout_s=1.0)

    def asked(self) -> list[list[int]]:
        """The keys of each fetch."""
        return [batch.column(0).to_pylist() for batch in self.batches]

    def pass_one(self) -> None:
        """Let the fetches that are held go on, and hold those that come after them."""
        self.release()
        self.hold()
