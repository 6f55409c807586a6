"""Parquet backends: lookups in rows in memory, or in the file at each fetch."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import structlog

from lookup_core.dimension.dimension_events import FetchedRows
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError
from lookup_core.rate_limits import EventRateLimit
from service.connectors.parquet.file import (
    ONE_ROW,
    ParquetFile,
    RowLimit,
    load_parquet_file,
    parquet_identities,
    parquet_schema,
    refuse_other_columns,
    unreplaced_files,
)
from service.connectors.parquet.file_thread import FileThread
from service.connectors.parquet.search import parquet_search
from service.connectors.ports.backend import Backend
from service.file_identity import FileIdentity

log = structlog.get_logger()

_MAX_CHECK_INTERVAL_S = 1.0  # also after a failed read, which may be expensive
_CHECK_INTERVAL_S_PER_FILE = 0.0002  # a check takes a few percent of it
_NOT_DESCRIBED = DimensionSchema(pa.schema([]), pa.schema([]))  # differs from that of each file


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


class ParquetBackend(Backend):
    """Rows of a Parquet file or folder in memory; a key may have several rows.

    While the file cannot be read, the previous rows stay, with their age.
    """

    uses_index = True
    reads_on_request = False  # rows in memory, as old as the last check of the file

    def __init__(
        self,
        path: Path,
        key: Sequence[str],
        *,
        columns: Sequence[str] | None = None,
        limit: RowLimit = ONE_ROW,
        clock: Callable[[], float] = time.monotonic,
        load: Callable[..., ParquetFile] = load_parquet_file,
    ) -> None:
        self._path = path
        self._load = partial(load, path, key, columns=columns, limit=limit)
        self._clock = clock
        self._thread = FileThread(path)
        self._loaded: _Loaded | None = None  # changed in the thread only
        self._logged: ParquetFile | None = None
        self._warnings = EventRateLimit()
        self._described = _NOT_DESCRIBED

    async def __aexit__(self, *_: object) -> None:
        """Release the rows."""
        self._thread.close()
        self._loaded = None

    async def describe(self, *, timeout_s: float) -> DimensionSchema:
        """Read the file if it changed since the last read.

        Raises BackendError `timeout`, and, without previous rows, `table_unavailable` or
        `forbidden`. After a timeout, the read continues in its thread for the next call.
        """
        loaded = await self._current(timeout_s)
        self._described = loaded.file.schema
        return loaded.file.schema

    async def probe(self, *, timeout_s: float) -> None:
        """Nothing to probe: rows in memory stay available."""

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
            _warn_unavailable(self._path, loaded.fault)
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


class ParquetScan(Backend):
    """Rows of a Parquet file or folder, searched at each fetch; a key may have several rows."""

    uses_index = False
    reads_on_request = True

    def __init__(
        self,
        path: Path,
        key: Sequence[str],
        *,
        columns: Sequence[str] | None = None,
        limit: RowLimit = ONE_ROW,
    ) -> None:
        self._path = path
        self._columns = columns
        self._limit = limit
        self._read_schema = partial(parquet_schema, path, key, columns=columns)
        self._thread = FileThread(path)
        self._described = _NOT_DESCRIBED

    async def __aexit__(self, *_: object) -> None:
        """End the thread."""
        self._thread.close()

    async def describe(self, *, timeout_s: float) -> DimensionSchema:
        """The columns of the current file, or of the last readable one.

        Loaded rows of the last readable file stay in use until another load. Without such a file,
        raises BackendError (`table_unavailable`, `forbidden`, `timeout`).
        """
        try:
            self._described = await self._thread.run(
                lambda _: self._read_schema(), timeout_s=timeout_s
            )
        except BackendError as error:
            if self._described is _NOT_DESCRIBED:
                raise
            _warn_unavailable(self._path, error)
        return self._described

    async def probe(self, *, timeout_s: float) -> None:
        """Nothing to probe: reads report whether the file is available."""

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


def _warn_unavailable(path: Path, fault: BackendError) -> None:
    log.warning("dimension.file_unavailable", path=str(path), code=fault.code, detail=fault.detail)
