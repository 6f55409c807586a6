"""Cache flood: memory of a cache whose keys never repeat, as in an endless scan.

Memory grows while the cache fills, so the fault limit applies from the first eviction on. The slope
from the first key on is only reported.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.section import FigureTable, Section
from lookup_core.cache.row_cache import RowCache
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.keys.canonical_keys import canonical_keys
from lookup_core.settings import CacheSettings
from service.resources.memory_reading import ProcessMemory

KEYS = 10_000_000  # takes ten seconds; with fewer keys the allocators have not settled
CACHE_BYTES = 64 * 1024 * 1024
BATCH_KEYS = 10_000

_MOST_SLOPE = 1.0  # MiB per million keys
_REMARK = (
    "Each key is looked up once and cached. The run fails with a slope above"
    f" {_MOST_SLOPE} MiB, or a cache above its bound."
)
_MIB = 1024 * 1024
_SCHEMA = DimensionSchema(
    pa.schema({"id": pa.int64()}),
    pa.schema({"tier": pa.int32(), "score": pa.float64(), "name": pa.utf8()}),
)


@dataclass(frozen=True, slots=True)
class Flood:
    """Measurements of a flood."""

    keys: int
    keys_per_second: float
    most_cache_bytes: int
    bound_bytes: int
    filling_keys: int  # before the first eviction
    resident_bytes: tuple[int, int, int]  # mean of each third of the keys after these
    first_bytes: int  # mean of the first third of all keys

    @property
    def slope(self) -> float:
        """Growth of resident memory after the first eviction, in MiB per million keys."""
        first, _, last = self.resident_bytes
        return _slope(first, last, self.keys - self.filling_keys)

    @property
    def slope_with_filling(self) -> float:
        """The same growth from the first key on."""
        return _slope(self.first_bytes, self.resident_bytes[2], self.keys)

    @property
    def has_fault(self) -> bool:
        """Whether the cache exceeded its bound or memory grew steadily."""
        return self.most_cache_bytes > self.bound_bytes or self.slope > _MOST_SLOPE


def cache_flood(folder: Path, *, is_quick: bool) -> Section:
    """Measure a flood, always of the same size; a broken bound or growing memory is a fault."""
    del folder, is_quick
    # In this process, memory that other parts have used could be released during the measurement.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        flood = process.submit(flood_of, KEYS, bound_bytes=CACHE_BYTES).result()
    return Section(
        name="flood",
        title="Keys that never repeat",
        remarks=[_REMARK],
        tables=[_table(flood)],
        faults=["the cache is above its bound, or memory grows"] if flood.has_fault else [],
    )


def flood_of(keys: int, *, bound_bytes: int) -> Flood:
    """Look up distinct keys and cache them all."""
    cache = RowCache(_SCHEMA, CacheSettings(max_bytes=bound_bytes))
    memory = ProcessMemory()
    most_bytes, filling, resident = 0, 0, []
    began = time.perf_counter()
    for first in range(0, keys, BATCH_KEYS):
        _look_up(cache, np.arange(first, min(first + BATCH_KEYS, keys)))
        statistics = cache.statistics()
        most_bytes = max(most_bytes, statistics.bytes)
        filling += not any(statistics.evictions.values())
        resident.append(memory.read().resident_bytes)
    elapsed_s = time.perf_counter() - began
    return Flood(
        keys=keys,
        keys_per_second=keys / elapsed_s,
        most_cache_bytes=most_bytes,
        bound_bytes=bound_bytes,
        filling_keys=filling * BATCH_KEYS,
        resident_bytes=_thirds(resident[filling:]),
        first_bytes=_thirds(resident)[0],
    )


def _look_up(cache: RowCache, numbers: npt.NDArray[np.int64]) -> None:
    column = pa.array(numbers)
    keys = canonical_keys(pa.record_batch([column], schema=_SCHEMA.key))
    assert not cache.probe(keys, 0.0).is_row.any()
    columns = [pa.array((numbers % 9).astype(np.int32)), pa.array(numbers * 0.5)]
    rows = pa.record_batch([*columns, column.cast(pa.utf8())], schema=_SCHEMA.columns)
    cache.fill(
        keys, np.ones(len(numbers), np.bool_), rows=rows, read_at=0.0, now=0.0, settles_later=False
    )


def _thirds(resident: Sequence[int]) -> tuple[int, int, int]:
    first, middle, last = np.array_split(np.array(resident), 3)
    return int(first.mean()), int(middle.mean()), int(last.mean())


def _slope(first_bytes: int, last_bytes: int, keys: int) -> float:
    return (last_bytes - first_bytes) / _MIB / (keys * 2 / 3 / 1_000_000)


def _table(flood: Flood) -> FigureTable:
    thirds = ", ".join(f"{each / _MIB:.1f}" for each in flood.resident_bytes)
    rows = [
        ("keys", f"{flood.keys:,}"),
        ("keys/s", f"{flood.keys_per_second:,.0f}"),
        ("cache bound, bytes", f"{flood.bound_bytes:,}"),
        ("largest cache, bytes", f"{flood.most_cache_bytes:,}"),
        ("resident by thirds, once full, MiB", thirds),
        ("slope, MiB per million keys", f"{flood.slope:+.3f}"),
        (
            f"slope with the {flood.filling_keys:,} keys that filled it",
            f"{flood.slope_with_filling:+.3f}",
        ),
    ]
    return FigureTable("A flood of keys", ("what", "figure"), rows)
