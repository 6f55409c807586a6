"""A backend whose keys have versions, each valid for some time: all of them, oldest first.

Around any other backend. Which version counts at a time is found by who looks it up: the rows are
the same for everybody, so that they are read and kept once.
"""

from dataclasses import replace

import numpy as np
import pyarrow as pa

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.nearest_name import nearest_name
from lookup_core.operator.moments import EARLIEST_US, is_moment, moments_us
from lookup_core.version_columns import VersionColumns
from service.backends.around_backend import AroundBackend
from service.backends.interface import Backend, FetchedRows
from service.backends.row_lists import list_columns, row_lists


class RowVersions(AroundBackend):
    """Asks `backend`, and makes one row of lists of the versions of each key."""

    def __init__(self, backend: Backend, versions: VersionColumns) -> None:
        super().__init__(backend)
        self._versions = versions

    async def describe(self, *, timeout_s: float) -> DimensionSchema:
        """Lists of the backend's types; those that say when a version is valid are marked.

        Raises BackendError (`table_unavailable`), too, if these are not there or hold no times.
        """
        schema = await self._backend.describe(timeout_s=timeout_s)
        for name in self._versions.names:
            _check_times(schema.columns, name)
        columns = self._versions.marked(list_columns(schema.columns))
        origin = schema.origin and schema.origin.without_rows()
        return DimensionSchema(schema.key, columns, origin)

    async def fetch(self, keys: pa.RecordBatch, *, timeout_s: float) -> FetchedRows:
        """One row for each key that has versions, by ascending ordinal.

        Versions that begin at the same time stay in the backend's order.
        """
        fetched = await self._backend.fetch(keys, timeout_s=timeout_s)
        begin = fetched.rows.column(self._versions.valid_from)
        order = np.lexsort((moments_us(begin, null_us=EARLIEST_US), fetched.ordinals))
        ordinals, starts = np.unique(fetched.ordinals[order], return_index=True)
        lists = row_lists(fetched.rows.take(pa.array(order)), starts)
        rows = pa.record_batch(lists.columns, schema=self._versions.marked(lists.schema))
        return replace(fetched, ordinals=ordinals, rows=rows)


def _check_times(columns: pa.Schema, name: str) -> None:
    if name not in columns.names:
        hint = nearest_name(name, columns.names)
        raise BackendError(
            ErrorCode.TABLE_UNAVAILABLE, f"versions: no column {name} among those offered{hint}"
        )
    kind = columns.field(name).type
    if not is_moment(kind):
        detail = f"versions: column {name} is {kind}; it must be a date or a timestamp"
        raise BackendError(ErrorCode.TABLE_UNAVAILABLE, detail)
