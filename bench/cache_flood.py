"""Whether a cache stays within its bytes, and the process with it, when keys never end.

Each key is asked for once, so that nothing is ever found: what a scan does to a cache, for long.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from rich.console import Console

from lookup_core.cache.row_cache import RowCache
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.keys.canonical_keys import canonical_keys
from lookup_core.settings import CacheSettings

FULL_KEYS = 10_000_000
QUICK_KEYS = 3_000_000
CACHE_BYTES = 64 * 1024 * 1024
BATCH_KEYS = 10_000

_MOST_SLOPE = 1.0  # MiB by a million keys: beyond, something is kept
_MIB = 1024 * 1024
_SCHEMA = DimensionSchema(
    pa.schema({"id": pa.int64()}),
    pa.schema({"tier": pa.int32(), "score": pa.float64(), "name": pa.utf8()}),
)


@dataclass(frozen=True, slots=True)
class Flood:
    """What a flood did."""

    keys: int
    keys_per_second: float
    most_cache_bytes: int
    bound_bytes: int
    resident_bytes: tuple[int, int, int]  # the mean of each third

    @property
    def slope(self) -> float:
        """MiB of resident memory by a million keys, from the middle of the first third on."""
        first, _, last = self.resident_bytes
        return (last - first) / _MIB / (self.keys * 2 / 3 / 1_000_000)

    @property
    def has_fault(self) -> bool:
        """Whether bytes went above the bound, or memory grew without end."""
        return self.most_cache_bytes > self.bound_bytes or self.slope > _MOST_SLOPE


def cache_flood(folder: Path, console: Console, *, is_quick: bool) -> int:
    """Measure, print and write; 1 if the bound was broken or memory grew."""
    flood = flood_of(QUICK_KEYS if is_quick else FULL_KEYS, bound_bytes=CACHE_BYTES)
    thirds = ", ".join(f"{each / _MIB:.1f}" for each in flood.resident_bytes)
    console.print(f"{flood.keys:,} keys, {flood.keys_per_second:,.0f} keys/s")
    console.print(f"cache_bytes at most {flood.most_cache_bytes:,} of {flood.bound_bytes:,}")
    console.print(f"resident MiB by thirds: {thirds}; slope {flood.slope:+.3f} MiB/million keys")
    (folder / "flood.json").write_text(json.dumps(asdict(flood) | {"slope": flood.slope}, indent=2))
    if flood.has_fault:
        console.print("WRONG: above the bound, or memory grows", style="red")
    return int(flood.has_fault)


def flood_of(keys: int, *, bound_bytes: int) -> Flood:
    """Ask for so many keys, each of which is new, and keep them."""
    cache = RowCache(_SCHEMA, CacheSettings(max_bytes=bound_bytes))
    most_bytes, resident = 0, []
    began = time.perf_counter()
    for numbers in _batches(keys):
        _ask(cache, numbers)
        most_bytes = max(most_bytes, cache.bytes)
        resident.append(_resident_bytes())
    elapsed_s = time.perf_counter() - began
    first, middle, last = (int(third.mean()) for third in np.array_split(np.array(resident), 3))
    return Flood(keys, keys / elapsed_s, most_bytes, bound_bytes, (first, middle, last))


def _batches(keys: int) -> Iterator[npt.NDArray[np.int64]]:
    for first in range(0, keys, BATCH_KEYS):
        yield np.arange(first, min(first + BATCH_KEYS, keys))


def _ask(cache: RowCache, numbers: npt.NDArray[np.int64]) -> None:
    column = pa.array(numbers)
    keys = canonical_keys(pa.record_batch([column], schema=_SCHEMA.key))
    assert not cache.probe(keys, 0.0).is_row.any()
    columns = [pa.array((numbers % 9).astype(np.int32)), pa.array(numbers * 0.5)]
    rows = pa.record_batch([*columns, column.cast(pa.utf8())], schema=_SCHEMA.columns)
    cache.fill(keys, np.ones(len(numbers), np.bool_), rows=rows, read_at=0.0, now=0.0)


def _resident_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("Linux tells the resident memory of each process")
