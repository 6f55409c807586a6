"""What a cached row takes in memory, against the same row with its key as Arrow holds it.

The cache's own account, and what the process really grew by, each in a process of its own.
"""

import ctypes
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.section import Bar, FigureTable, Section
from bench.workload import SEED, customers
from lookup_core.cache.row_cache import RowCache
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.keys.canonical_keys import canonical_keys
from lookup_core.settings import CacheSettings
from service.resources.memory_reading import ProcessMemory

FULL = (10_000, 100_000, 1_000_000)  # rows that are put in
QUICK = FULL[:-1]
MOST_RATIO = 2.0
LEAST_ROWS = 10_000  # in a cache that is judged
BATCH_ROWS = 5_000
_ROOMY_BYTES = 2**30
_MIB = 2**20
_METHOD = (
    "The workload's customers (a number as key, two texts and a number) go into the cache of a"
    f" dimension in batches of {BATCH_ROWS:,} rows. `cache` is the cache's own account: rows, keys,"
    " index and what it knows of keys that went. `process` is by how much the resident memory of a"
    " process grew that does nothing else, some MiB of code and allocators included; `in use`, what"
    " is left of that when allocators have given back what nobody uses. `Arrow` is what the same"
    " rows take as one Arrow table, key column included."
)
_BOUNDS = (
    "In half of the cases a bound is reached: the cache may have as many bytes as Arrow has for all"
    " rows, so that some of them have to go. The bar is held against the worst cache of at least"
    f" {LEAST_ROWS:,} rows: what is fixed outweighs the rows of smaller ones."
)


@dataclass(frozen=True, slots=True)
class CachedRows:
    """A cache that was filled, and what it takes."""

    put_rows: int
    kept_rows: int
    arrow_row_bytes: float
    cache_bytes: int
    process_bytes: int  # by how much the process grew
    used_bytes: int  # of that: not merely kept by allocators

    @property
    def ratio(self) -> float:
        """Bytes of a row in the cache against those in Arrow."""
        return self.cache_bytes / self.kept_rows / self.arrow_row_bytes


def row_bytes(folder: Path, *, is_quick: bool) -> Section:
    """Fill caches of all sizes, with room and without; the worst of them is held to the bar."""
    del folder
    sizes = QUICK if is_quick else FULL
    measured = [
        _in_own_process(rows, is_roomy=is_roomy) for rows in sizes for is_roomy in (True, False)
    ]
    return Section(
        name="row-bytes",
        title="Bytes of a cached row",
        remarks=(_METHOD, _BOUNDS),
        tables=[_table(measured)],
        bars=[_bar(measured)],
    )


def cached_rows(rows: int, *, is_roomy: bool) -> CachedRows:
    """Fill a cache with so many rows; its bound is far away, or what Arrow takes for them."""
    table = customers(rows, np.random.default_rng(SEED)).combine_chunks()
    schema = DimensionSchema(table.select(["id"]).schema, table.drop_columns(["id"]).schema)
    max_bytes = _ROOMY_BYTES if is_roomy else table.nbytes
    memory = ProcessMemory()
    before_bytes = _used_bytes(memory)
    cache = RowCache(schema, CacheSettings(max_bytes=max_bytes))
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


def _in_own_process(rows: int, *, is_roomy: bool) -> CachedRows:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(cached_rows, rows, is_roomy=is_roomy).result()


def _fill(cache: RowCache, batch: pa.RecordBatch, schema: DimensionSchema) -> None:
    keys = canonical_keys(batch.select(schema.key.names))
    has_row = np.ones(batch.num_rows, np.bool_)
    rows = batch.select(schema.columns.names)
    cache.fill(keys, has_row, rows=rows, read_at=0.0, now=0.0)


def _used_bytes(memory: ProcessMemory) -> int:
    pa.default_memory_pool().release_unused()
    with suppress(AttributeError):  # a C library that cannot; then a little more is counted
        ctypes.CDLL(None).malloc_trim(0)
    return memory.read().resident_bytes


def _bar(measured: list[CachedRows]) -> Bar:
    worst = max(each.ratio for each in measured if each.kept_rows >= LEAST_ROWS)
    return Bar("a cached row: bytes against its Arrow bytes", worst, MOST_RATIO, is_at_least=False)


def _table(measured: list[CachedRows]) -> FigureTable:
    headings = (
        *("rows put in", "bound", "rows kept", "Arrow bytes/row", "cache bytes/row"),
        *("cache to Arrow", "cache MiB", "process MiB", "in use MiB"),
    )
    return FigureTable("Bytes by size of the cache", headings, [_row(each) for each in measured])


def _row(each: CachedRows) -> tuple[str, ...]:
    bound = "far" if each.kept_rows == each.put_rows else "reached"
    bytes_of_row = each.cache_bytes / each.kept_rows
    return (
        *(f"{each.put_rows:,}", bound, f"{each.kept_rows:,}"),
        *(f"{each.arrow_row_bytes:.1f}", f"{bytes_of_row:.1f}", f"{each.ratio:.2f}"),
        *(f"{size / _MIB:.1f}" for size in (each.cache_bytes, each.process_bytes, each.used_bytes)),
    )
