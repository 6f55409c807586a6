"""Backends for keys with several rows: first match, all matches, or versions."""

from dataclasses import replace
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.dimension_schema import DimensionSchema, VersionColumns
from lookup_core.errors import BackendError, ErrorCode, nearest_name
from lookup_core.operator.as_of import EARLIEST_US, is_moment, moments_us
from lookup_core.settings import Match
from service.connectors.ports.backend import Backend, FetchedRows


class AroundBackend:
    """Opened, closed and probed as the backend within."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @property
    def uses_index(self) -> bool | None:
        """As the backend says."""
        return self._backend.uses_index

    async def __aenter__(self) -> Self:
        """Open the backend."""
        await self._backend.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the backend."""
        await self._backend.__aexit__(kind, error, traceback)

    async def probe(self, *, timeout_s: float) -> None:
        """Ask the backend."""
        await self._backend.probe(timeout_s=timeout_s)


def row_lists(rows: pa.RecordBatch, starts: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """One row for each start: of each column the values up to the next start."""
    offsets = pa.array(np.append(starts, rows.num_rows), pa.int32())
    columns = [pa.ListArray.from_arrays(offsets, column) for column in rows.columns]
    return pa.record_batch(columns, schema=list_columns(rows.schema))


def list_columns(columns: pa.Schema) -> pa.Schema:
    """The columns of such rows."""
    return pa.schema([pa.field(field.name, pa.list_(field.type)) for field in columns])


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
