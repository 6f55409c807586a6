"""Parquet backends: lookups in rows in memory, or in the file at each fetch.

A search in the file skips row groups by their statistics, and reads the others; it holds matching
rows only.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import and_
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import structlog
from pyarrow import types

from lookup_core.dimension.dimension_events import FetchedRows
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.rate_limits import EventRateLimit
from service.connectors.parquet.file import (
    ONE_ROW,
    ParquetFile,
    RowLimit,
    check_parquet_schema,
    load_parquet_file,
    parquet_dataset,
    parquet_errors,
    parquet_identities,
    parquet_schema,
    refuse_other_columns,
    unreplaced_files,
)
from service.connectors.parquet.file_thread import FileThread, IsAbandoned
from service.connectors.parquet.rows import opened_rows, row_fields
from service.connectors.ports.backend import Backend
from service.connectors.ports.resource import Resource
from service.file_identity import FileIdentity

log = structlog.get_logger()

_MAX_CHECK_INTERVAL_S = 1.0  # also after a failed read, which may be expensive
_CHECK_INTERVAL_S_PER_FILE = 0.0002  # a check takes a few percent of it
_NOT_DESCRIBED = DimensionSchema(pa.schema([]), pa.schema([]))  # differs from that of each file

# Types whose statistics all writers sort as comparisons do.
_HAS_ORDERED_STATISTICS = (
    *(types.is_signed_integer, types.is_string, types.is_binary),
    *(types.is_date32, types.is_timestamp),
)


@dataclass(frozen=True, slots=True)
class _Loaded:
    file: ParquetFile
    identities: Mapping[str, FileIdentity]
    seen_at: float  # monotonic seconds of the last check that found this file
    checked_at: float  # monotonic seconds of the last check, failed ones included
    fault: BackendError | None = None  # the last check's

    @property
    def next_check_at(self) -> float:
        """Monotonic seconds of the next check."""
        if self.fault is not None:
            return self.checked_at + _MAX_CHECK_INTERVAL_S
        interval_s = _CHECK_INTERVAL_S_PER_FILE * len(self.identities)
        return self.checked_at + min(_MAX_CHECK_INTERVAL_S, interval_s)


class _FileBackend(Resource, Backend):
    """A file or folder, and the schema of its last description; a key may have several rows."""

    def __init__(
        self,
        path: Path,
        key: Sequence[str],
        *,
        columns: Sequence[str] | None = None,
        limit: RowLimit = ONE_ROW,
    ) -> None:
        self._path = path
        self._key = key
        self._columns = columns
        self._limit = limit
        self._thread = FileThread(path)
        self._described = _NOT_DESCRIBED

    async def open(self, stack: AsyncExitStack) -> None:
        """Leave the file to `describe`."""
        stack.callback(self._thread.close)

    def _warn(self, fault: BackendError) -> None:
        log.warning(
            "dimension.file_unavailable",
            path=str(self._path),
            code=fault.code,
            detail=fault.detail,
        )


class ParquetBackend(_FileBackend):
    """Rows of a Parquet file or folder in memory.

    While the file cannot be read, the previous rows stay, with their age.
    """

    uses_index = True
    reads_on_request = False  # rows in memory, as old as the last check of the file

    def __init__(
        self,
        path: Path,
        key: Sequence[str],
        *,
        clock: Callable[[], float] = time.monotonic,
        load: Callable[..., ParquetFile] = load_parquet_file,
        columns: Sequence[str] | None = None,
        limit: RowLimit = ONE_ROW,
    ) -> None:
        super().__init__(path, key, columns=columns, limit=limit)
        self._load = partial(load, path, key, columns=columns, limit=limit)
        self._clock = clock
        self._loaded: _Loaded | None = None  # changed in the thread only
        self._logged: ParquetFile | None = None
        self._warnings = EventRateLimit()

    async def describe(self, *, timeout_s: float) -> DimensionSchema:
        """Read the file if it changed since the last read.

        Raises BackendError `timeout`, and, without previous rows, `table_unavailable` or
        `forbidden`. After a timeout, the read continues in its thread for the next call.
        """
        loaded = await self._current(timeout_s)
        self._described = loaded.file.schema
        return loaded.file.schema

    async def fetch(self, keys: pa.RecordBatch, *, timeout_s: float) -> FetchedRows:
        """The rows of the keys; raises BackendError `timeout`, or `schema_changed`."""
        started_at = self._clock()
        loaded = await self._current(timeout_s)
        refuse_other_columns(self._path, loaded.file.schema, self._described)
        return replace(loaded.file.find(keys), read_at=min(started_at, loaded.seen_at))

    async def _current(self, timeout_s: float) -> _Loaded:
        loaded = await self._thread.run(lambda _: self._checked(), timeout_s=timeout_s)
        if loaded.fault is None:
            self._warnings.on_success()
        elif self._warnings.is_due(str(loaded.fault), self._clock()):
            self._warn(loaded.fault)
        if loaded.file is not self._logged:
            self._logged = loaded.file
            row_count = loaded.file.rows.num_rows
            log.info("dimension.file_read", path=str(self._path), row_count=row_count)
        return loaded

    def _checked(self) -> _Loaded:
        """The current file, or the last readable one."""
        loaded, now = self._loaded, self._clock()
        if loaded is not None and now < loaded.next_check_at:
            return loaded
        try:
            if loaded is not None and loaded.identities == parquet_identities(self._path):
                self._loaded = replace(loaded, seen_at=now, checked_at=now, fault=None)
            else:
                with unreplaced_files(self._path) as identities:
                    self._loaded = _Loaded(self._load(), identities, seen_at=now, checked_at=now)
        except BackendError as error:
            if loaded is None:
                raise
            self._loaded = replace(loaded, checked_at=now, fault=error)
        return self._loaded


class ParquetScan(_FileBackend):
    """Rows of a Parquet file or folder, searched at each fetch."""

    uses_index = False

    async def describe(self, *, timeout_s: float) -> DimensionSchema:
        """The columns of the current file, or of the last readable one.

        Loaded rows of the last readable file stay in use until another load. Without such a file,
        raises BackendError (`table_unavailable`, `forbidden`, `timeout`).
        """
        read = partial(parquet_schema, self._path, self._key, columns=self._columns)
        try:
            self._described = await self._thread.run(lambda _: read(), timeout_s=timeout_s)
        except BackendError as error:
            if self._described is _NOT_DESCRIBED:
                raise
            self._warn(error)
        return self._described

    async def fetch(self, keys: pa.RecordBatch, *, timeout_s: float) -> FetchedRows:
        """The rows of the keys; raises BackendError (`table_unavailable`, `schema_changed`, …)."""
        search = partial(
            parquet_search,
            self._path,
            keys,
            described=self._described,
            columns=self._columns,
            limit=self._limit,
        )
        return await self._thread.run(
            lambda is_abandoned: search(is_abandoned=is_abandoned), timeout_s=timeout_s
        )


def parquet_search(
    path: Path,
    keys: pa.RecordBatch,
    *,
    described: DimensionSchema,
    columns: Sequence[str] | None,
    is_abandoned: IsAbandoned,
    limit: RowLimit = ONE_ROW,
) -> FetchedRows:
    """The current rows of these keys.

    Blocks the thread; an abandoned search ends at its next batch. Raises BackendError:
    `schema_changed` if the columns differ from those described, `table_unavailable` if the file
    cannot be read or is replaced during the search.
    """
    with parquet_errors(path), unreplaced_files(path):
        dataset = parquet_dataset(path)
        check_parquet_schema(path, dataset, described, columns=columns)
        fields = row_fields(described)
        batches = [
            batch
            for fragment in dataset.get_fragments()
            for batch in _candidates(fragment, keys, fields=fields, is_abandoned=is_abandoned)
        ]
    table = pa.Table.from_batches(batches, fields)
    return ParquetFile(described, table, limit=limit).find(keys)


def _candidates(
    fragment: ds.ParquetFileFragment,
    keys: pa.RecordBatch,
    *,
    fields: pa.Schema,
    is_abandoned: IsAbandoned,
) -> Iterator[pa.RecordBatch]:
    """Rows in which each key column has the value of some key."""
    pruned = _pruned(fragment, keys)
    if not pruned.row_groups:
        return
    with opened_rows(pruned) as rows:
        for group in pruned.row_groups:
            # Key columns first: they are small, and most row groups contain no key.
            key_batches = _until_abandoned(rows.steps(group.id, keys.schema), is_abandoned)
            if any(_filtered(batch, keys).num_rows for batch in key_batches):
                batches = _until_abandoned(rows.steps(group.id, fields), is_abandoned)
                yield from (_filtered(batch, keys) for batch in batches)


def _until_abandoned(
    batches: Iterator[pa.RecordBatch], is_abandoned: IsAbandoned
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if is_abandoned():
            raise BackendError(ErrorCode.TIMEOUT, "the caller no longer waits for these rows")
        yield batch


def _pruned(fragment: ds.ParquetFileFragment, keys: pa.RecordBatch) -> ds.ParquetFileFragment:
    """The fragment without the row groups whose statistics exclude all keys."""
    stored = fragment.physical_schema
    conditions = [
        pc.field(part.name).isin(keys.column(part.name))
        for part in keys.schema
        if any(is_type(part.type) for is_type in _HAS_ORDERED_STATISTICS)
        and part.name in stored.names
        and stored.field(part.name).type == part.type
    ]
    return fragment.subset(filter=reduce(and_, conditions)) if conditions else fragment


def _filtered(batch: pa.RecordBatch, keys: pa.RecordBatch) -> pa.RecordBatch:
    for name in keys.schema.names:
        batch = batch.filter(pc.is_in(batch.column(name), value_set=keys.column(name)))
    return batch
