"""Bytes of a cached row against the same row and key in Arrow.

Compares the cache's own account and the growth of the process, each case in a process of its own.
"""

import ctypes
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

from bench.section import FigureTable, Section, Target
from bench.workload import SEED, customers
from lookup_core.cache.cached_answers import CacheDescription
from lookup_core.cache.row_cache import RowCache
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.keys.canonical_keys import canonical_keys
from lookup_core.settings import CacheSettings
from service.resources.memory_reading import ProcessMemory
from service.resources.shared_memory import SharedMemory
from service.resources.shared_place import SHARED_MEMORY

FULL = (10_000, 100_000, 1_000_000)  # rows put in
QUICK = FULL[:-1]
MOST_RATIO = 1.9
LEAST_ROWS = 10_000  # in a cache that counts for the target
BATCH_ROWS = 5_000
_ROOMY_BYTES = 2**30
_MIB = 2**20
_METHOD = (
    "The workload's customers (an integer key, two texts and an integer) fill a cache in shared"
    f" memory in batches of {BATCH_ROWS:,} rows. `Arrow` is the size of rows and keys as one Arrow"
    " table, and `cache` that of rows, keys, index and hashes of evicted keys. `process` is the"
    " growth of the process, with code and allocators. `in use` is the part that remains after the"
    " allocators release unused memory."
)
_BOUNDS = (
    "In half of the cases the bound is the Arrow size of all rows, so that rows are evicted. The"
    f" target is for caches of at least {LEAST_ROWS:,} rows: in smaller ones, fixed costs outweigh"
    " the rows."
)


@dataclass(frozen=True, slots=True)
class CachedRows:
    """Sizes of a filled cache."""

    put_rows: int
    kept_rows: int
    arrow_row_bytes: float
    cache_bytes: int
    process_bytes: int  # growth of the process
    used_bytes: int  # growth without memory that allocators keep unused

    @property
    def ratio(self) -> float:
        """Bytes per row in the cache against those in Arrow."""
        return self.cache_bytes / self.kept_rows / self.arrow_row_bytes


def row_bytes(folder: Path, *, is_quick: bool) -> Section:
    """Fill caches of all sizes, with and without a reachable bound."""
    del folder
    measured = [
        _in_own_process(rows, is_roomy=is_roomy)
        for rows in (QUICK if is_quick else FULL)
        for is_roomy in (True, False)
    ]
    worst = max(each.ratio for each in measured if each.kept_rows >= LEAST_ROWS)
    what = "cached row: bytes against its Arrow bytes"
    return Section(
        name="row-bytes",
        title="Bytes of a cached row",
        remarks=(_METHOD, _BOUNDS),
        tables=[_table(measured)],
        targets=[Target(what, worst, MOST_RATIO, is_at_least=False)],
    )


def _in_own_process(rows: int, *, is_roomy: bool) -> CachedRows:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(_cached_rows, rows, is_roomy=is_roomy).result()


def _cached_rows(rows: int, *, is_roomy: bool) -> CachedRows:
    table = customers(rows, np.random.default_rng(SEED)).combine_chunks()
    schema = DimensionSchema(table.select(["id"]).schema, table.drop_columns(["id"]).schema)
    max_bytes = _ROOMY_BYTES if is_roomy else table.nbytes
    memory = ProcessMemory()
    before_bytes = _used_bytes(memory)
    settings = CacheSettings(max_bytes=max_bytes)
    with TemporaryDirectory(dir=SHARED_MEMORY) as folder:
        description = CacheDescription(schema, SEED, settings)
        cache = RowCache(
            schema, settings, SharedMemory("customers", Path(folder) / "cache", description)
        )
        for batch in table.to_batches(BATCH_ROWS):
            _fill(cache, batch, schema)
        process_bytes = memory.read().resident_bytes - before_bytes
        return CachedRows(
            put_rows=rows,
            kept_rows=cache.statistics().rows,
            arrow_row_bytes=table.nbytes / rows,
            cache_bytes=cache.bytes,
            process_bytes=process_bytes,
            used_bytes=_used_bytes(memory) - before_bytes,
        )


def _fill(cache: RowCache, batch: pa.RecordBatch, schema: DimensionSchema) -> None:
    keys = canonical_keys(batch.select(schema.key.names))
    has_row = np.ones(batch.num_rows, np.bool_)
    rows = batch.select(schema.columns.names)
    cache.fill(keys, has_row, rows=rows, read_at=0.0, now=0.0, settles_later=False)


def _used_bytes(memory: ProcessMemory) -> int:
    pa.default_memory_pool().release_unused()
    with suppress(AttributeError):  # without it the figure is slightly larger
        ctypes.CDLL(None).malloc_trim(0)
    return memory.read().resident_bytes


def _table(measured: list[CachedRows]) -> FigureTable:
    headings = (
        *("rows", "bound", "kept", "Arrow B/row", "cache B/row"),
        *("ratio", "cache MiB", "process MiB", "in use MiB"),
    )
    return FigureTable("Bytes by size of the cache", headings, [_row(each) for each in measured])


def _row(each: CachedRows) -> tuple[str, ...]:
    bound = "not reached" if each.kept_rows == each.put_rows else "reached"
    bytes_of_row = each.cache_bytes / each.kept_rows
    return (
        *(f"{each.put_rows:,}", bound, f"{each.kept_rows:,}"),
        *(f"{each.arrow_row_bytes:.1f}", f"{bytes_of_row:.1f}", f"{each.ratio:.2f}"),
        *(f"{size / _MIB:.1f}" for size in (each.cache_bytes, each.process_bytes, each.used_bytes)),
    )
