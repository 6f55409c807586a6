"""A backend in which one row arrives late: after a number of queries, not after a time."""

import pyarrow as pa
import pyarrow.compute as pc

from lookup_core.dimension.dimension_events import FetchedRows
from tests.service.connectors.fake_backend import FakeBackend
from tests.service.engine.running import ROWS, SCHEMA

LATE_KEY = 8  # Bert


class LateBackend(FakeBackend):
    """The first fetches do not find Bert's row."""

    def __init__(self, *, misses: int) -> None:
        super().__init__(ROWS, SCHEMA)
        self._misses = misses
        self._early = FakeBackend(ROWS.filter(pc.field("id") != LATE_KEY), SCHEMA)

    async def fetch(self, keys: pa.RecordBatch, *, timeout_s: float) -> FetchedRows:
        """The rows that have arrived."""
        number = len(self.batches)
        found = await super().fetch(keys, timeout_s=timeout_s)
        return found if number >= self._misses else await self._early.fetch(keys, timeout_s=1.0)

    def asked(self) -> list[list[int]]:
        """The keys of each fetch."""
        return [batch.column(0).to_pylist() for batch in self.batches]

    def pass_one(self) -> None:
        """Release the held fetches, and hold later ones."""
        self.release()
        self.hold()
