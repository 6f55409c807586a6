"""Parquet backends: the file in memory, or searched at each fetch."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa
import structlog

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError
from lookup_core.event_rate_limit import EventRateLimit
from service.connectors.parquet.file import (
    FileIdentity,
    ParquetFile,
    load_parquet_file,
    parquet_identities,
    parquet_schema,
    refuse_other_columns,
    unreplaced_files,
)
from service.connectors.parquet.file_thread import FileThread
from service.connectors.parquet.search import parquet_search
from service.connectors.ports.backend import FetchedRows

log = structlog.get_logger()

_LONGEST_REST_S = 1.0  # after a look, and after a file that cannot be read: it may be large
_REST_S_PER_FILE = 0.0002  # of which a look takes some percent; next to nothing for one file


@dataclass(frozen=True, slots=True)
class _Held:
    file: ParquetFile
    identities: Mapping[str, FileIdentity]
    seen_at: float  # monotonic seconds; it was there then
    looked_at: float  # the same; then it was there, or could not be read
    fault: BackendError | None = None  # why it could not

    @property
    def rests_until(self) -> float:
        """Until when this is not looked at again."""
        if self.fault is not None:
            return self.looked_at + _LONGEST_REST_S
        return self.looked_at + min(_LONGEST_REST_S, _REST_S_PER_FILE * len(self.identities))


class ParquetBackend:
    """The rows of a Parquet file, or of a folder of them; a key may have several rows.

    While the file cannot be read, the former rows stay, and get older.
    """

    def __init__(
        self,
        path: Path,
        key: Sequence[str],
        *,
        columns: Sequence[str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        load: Callable[..., ParquetFile] = load_parquet_file,
    ) -> None:
        self._path = path
        self._load = partial(load, path, key, columns=columns)
        self._clock = clock
        self._thread = FileThread(path)
        self._held: _Held | None = None  # changed in the thread only
        self._told: ParquetFile | None = None  # to the log
        self._warnings = EventRateLimit()
        self._described: DimensionSchema | None = None

    @property
    def uses_index(self) -> bool:
        """Always: rows in memory have one."""
        return True

    async def __aenter__(self) -> Self:
        """Nothing to prepare: the file may come later."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Let go of the rows."""
        self._thread.close()
        self._held = None

    async def describe(self, *, timeout_s: float) -> DimensionSchema:
        """Read the file, if it is another one than was read before.

        Raises BackendError (`table_unavailable`, `forbidden`, `timeout`) if there are no former
        rows. The timeout leaves the thread to read on, for who asks next.
        """
        held = await self._look(timeout_s)
        self._described = held.file.schema
        return held.file.schema

    async def probe(self, *, timeout_s: float) -> None:
        """Nothing: rows in memory do not go away."""

    async def fetch(self, keys: pa.RecordBatch, *, timeout_s: float) -> FetchedRows:
        """The rows of the keys, from memory, once the file that is there now was read.

        Raises BackendError: `schema_changed` if that has other columns, `timeout`.
        """
        asked_at = self._clock()
        held = await self._look(timeout_s)
        assert self._described is not None, "describe comes first"
        refuse_other_columns(self._path, held.file.schema, self._described)
        return replace(held.file.find(keys), read_at=min(asked_at, held.seen_at))

    async def _look(self, timeout_s: float) -> _Held:
        held = await self._thread.run(lambda _: self._newest(), timeout_s=timeout_s)
        if held.fault is None:
            self._warnings.on_success()
        elif self._warnings.is_due(str(held.fault), self._clock()):
            log.warning(
                "dimension.file_unavailable", code=held.fault.code, detail=held.fault.detail
            )
        if held.file is not self._told:
            self._told = held.file
            log.info("dimension.file_read", path=str(self._path), row_count=held.file.row_count)
        return held

    def _newest(self) -> _Held:
        """What is held of the file that is there now, or of the last one that could be read."""
        held, now = self._held, self._clock()
        if held is not None and now < held.rests_until:
            return held
        try:
            self._held = self._looked_at(held, now)
        except BackendError as error:
            if held is None:
                raise
            self._held = replace(held, looked_at=now, fault=error)
        return self._held

    def _looked_at(self, held: _Held | None, now: float) -> _Held:
        if held is not None and held.identities == parquet_identities(self._path):
            return replace(held, seen_at=now, looked_at=now, fault=None)
        with unreplaced_files(self._path) as identities:
            return _Held(self._load(), identities, seen_at=now, looked_at=now)


class ParquetScan:
    """The rows of the file that is there now; a key may have several."""

    def __init__(
        self, path: Path, key: Sequence[str], *, columns: Sequence[str] | None = None
    ) -> None:
        self._path = path
        self._columns = columns
        self._read_schema = partial(parquet_schema, path, key, columns=columns)
        self._thread = FileThread(path)
        self._described: DimensionSchema | None = None

    @property
    def uses_index(self) -> bool:
        """Never: a file has none."""
        return False

    async def __aenter__(self) -> Self:
        """Nothing to prepare: the file may come later."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Let the thread end."""
        self._thread.close()

    async def describe(self, *, timeout_s: float) -> DimensionSchema:
        """The columns of the file that is there now; those of a former one while it is unfit.

        What was loaded of that one stays the dimension's, until another can be loaded. Raises
        BackendError (`table_unavailable`, `forbidden`, `timeout`) if there was none.
        """
        try:
            self._described = await self._thread.run(
                lambda _: self._read_schema(), timeout_s=timeout_s
            )
        except BackendError as error:
            if self._described is None:
                raise
            log.warning("dimension.file_unavailable", code=error.code, detail=error.detail)
        return self._described

    async def probe(self, *, timeout_s: float) -> None:
        """Nothing: whether the file can be read is told by who reads it."""

    async def fetch(self, keys: pa.RecordBatch, *, timeout_s: float) -> FetchedRows:
        """The rows of the keys.

        Raises BackendError (`table_unavailable`, `forbidden`, `timeout`); `schema_changed` if the
        file has other columns than those described.
        """
        assert self._described is not None, "describe comes first"
        search = partial(
            parquet_search, self._path, keys, described=self._described, columns=self._columns
        )
        return await self._thread.run(lambda is_left: search(is_left=is_left), timeout_s=timeout_s)
