"""A backend whose keys may have several rows: the first of them counts, or all as lists.

Around any other backend, in whose order the rows of a key are; without it several rows are an
error, which is the engine's to say.
"""

from dataclasses import replace

import numpy as np
import pyarrow as pa

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.settings import Match
from service.backends.around_backend import AroundBackend
from service.backends.interface import Backend, FetchedRows
from service.backends.row_lists import list_columns, row_lists


class RowMatch(AroundBackend):
    """Asks `backend`, and makes one row of those of each key."""

    def __init__(self, backend: Backend, match: Match) -> None:
        super().__init__(backend)
        self._match = match

    async def describe(self, *, timeout_s: float) -> DimensionSchema:
        """The backend's types; columns that hold all rows of a key are lists of them."""
        schema = await self._backend.describe(timeout_s=timeout_s)
        columns = schema.columns if self._match is Match.FIRST else list_columns(schema.columns)
        origin = schema.origin and schema.origin.without_rows()
        return DimensionSchema(schema.key, columns, origin)

    async def fetch(self, keys: pa.RecordBatch, *, timeout_s: float) -> FetchedRows:
        """At most one row for each key, by ascending ordinal."""
        fetched = await self._backend.fetch(keys, timeout_s=timeout_s)
        order = np.argsort(fetched.ordinals, kind="stable")
        ordinals, starts = np.unique(fetched.ordinals[order], return_index=True)
        if self._match is Match.FIRST:
            rows = fetched.rows.take(pa.array(order[starts]))
        else:
            rows = row_lists(fetched.rows.take(pa.array(order)), starts)
        return replace(fetched, ordinals=ordinals, rows=rows)
