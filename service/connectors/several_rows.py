"""Backend wrappers for keys with several rows: first match, all matches, or versions."""

from contextlib import AsyncExitStack
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.dimension.dimension_events import FetchedRows
from lookup_core.dimension_schema import DimensionSchema, VersionColumns
from lookup_core.errors import BackendError, ErrorCode, nearest_name
from lookup_core.operator.as_of import EARLIEST_US, is_moment, moments_us
from lookup_core.settings import Match
from service.connectors.ports.backend import Backend
from service.connectors.ports.resource import Resource


class _Wrapper(Resource):
    """Delegates to the wrapped backend all but `describe` and `fetch`."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.reads_on_request = backend.reads_on_request
        self.probe = backend.probe

    @property
    def uses_index(self) -> bool | None:
        """As the wrapped backend."""
        return self._backend.uses_index

    async def open(self, stack: AsyncExitStack) -> None:
        """Open the wrapped backend."""
        await stack.enter_async_context(self._backend)


class RowMatch(_Wrapper):
    """The first row of each key, or lists of all its rows, in the backend's order."""

    def __init__(self, backend: Backend, match: Match) -> None:
        super().__init__(backend)
        self._is_first = match is Match.FIRST

    async def describe(self, *, timeout_s: float) -> DimensionSchema:
        """The backend's schema, with the columns or with lists of them."""
        schema = await self._backend.describe(timeout_s=timeout_s)
        return _with(schema, schema.columns if self._is_first else list_columns(schema.columns))

    async def fetch(self, keys: pa.RecordBatch, *, timeout_s: float) -> FetchedRows:
        """At most one row per key, by ascending ordinal."""
        fetched = await self._backend.fetch(keys, timeout_s=timeout_s)
        order = np.argsort(fetched.ordinals, kind="stable")
        if not self._is_first:
            return _as_lists(fetched, order)
        ordinals, starts = np.unique(fetched.ordinals[order], return_index=True)
        return replace(fetched, ordinals=ordinals, rows=fetched.rows.take(pa.array(order[starts])))


class RowVersions(_Wrapper):
    """Lists of the versions of each key, oldest first; equally old ones in the backend's order."""

    def __init__(self, backend: Backend, versions: VersionColumns) -> None:
        super().__init__(backend)
        self._versions = versions

    async def describe(self, *, timeout_s: float) -> DimensionSchema:
        """The backend's schema with lists of the columns; the validity columns are marked.

        Also raises BackendError (`table_unavailable`) if these do not exist or hold no times.
        """
        schema = await self._backend.describe(timeout_s=timeout_s)
        for name in self._versions.names:
            _check_times(schema.columns, name)
        return _with(schema, self._versions.marked(list_columns(schema.columns)))

    async def fetch(self, keys: pa.RecordBatch, *, timeout_s: float) -> FetchedRows:
        """One row for each key that has versions, by ascending ordinal."""
        fetched = await self._backend.fetch(keys, timeout_s=timeout_s)
        begin = fetched.rows.column(self._versions.valid_from)
        order = np.lexsort((moments_us(begin, null_us=EARLIEST_US), fetched.ordinals))
        lists = _as_lists(fetched, order)
        schema = self._versions.marked(lists.rows.schema)
        return replace(lists, rows=pa.record_batch(lists.rows.columns, schema=schema))


def list_columns(columns: pa.Schema) -> pa.Schema:
    """Columns of lists of these types."""
    return pa.schema([pa.field(field.name, pa.list_(field.type)) for field in columns])


def _with(schema: DimensionSchema, columns: pa.Schema) -> DimensionSchema:
    return replace(schema, columns=columns, origin=schema.origin and schema.origin.without_rows())


def _as_lists(fetched: FetchedRows, order: npt.NDArray[np.intp]) -> FetchedRows:
    """One row of lists per key, of its rows in this order."""
    ordinals, starts = np.unique(fetched.ordinals[order], return_index=True)
    rows = fetched.rows.take(pa.array(order))
    offsets = pa.array(np.append(starts, rows.num_rows), pa.int32())
    lists = [pa.ListArray.from_arrays(offsets, column) for column in rows.columns]
    return replace(
        fetched, ordinals=ordinals, rows=pa.record_batch(lists, schema=list_columns(rows.schema))
    )


def _check_times(columns: pa.Schema, name: str) -> None:
    if name not in columns.names:
        hint = nearest_name(name, columns.names)
        raise BackendError(
            ErrorCode.TABLE_UNAVAILABLE,
            f"versions: no column {name} among the dimension's columns{hint}",
        )
    kind = columns.field(name).type
    if not is_moment(kind):
        detail = f"versions: column {name} is {kind}; name a date or a timestamp"
        raise BackendError(ErrorCode.TABLE_UNAVAILABLE, detail, is_permanent=True)
