"""Hit rates of the cache against plain LRU and plain S3-FIFO."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.section import FigureTable, Section
from bench.workload import SEED
from lookup_core.cache.row_cache import RowCache
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.keys.canonical_keys import CanonicalKeys, canonical_keys
from lookup_core.settings import CacheSettings

FULL = (1_000_000, 3_000)  # distinct keys, batches
QUICK = (100_000, 200)
SHARES = (0.01, 0.1)  # capacity of a cache by distinct keys
BATCH_KEYS = 1_000
SCHEMA = DimensionSchema(
    pa.schema({"id": pa.int64()}), pa.schema({"tier": pa.int64(), "score": pa.float64()})
)

_WARM = 0.25  # share of the batches that only warm up
_ROOMY_BYTES = 2**32
_SMALL_SHARE = 0.1
_MOST_VISITS = 3
_VISITS_TO_PROVE = 2
_REMARK = (
    "Batches of distinct keys pass caches with room for some of them; the first quarter warms up."
    " Keys of scans count as lookups, although no cache can have them. LRU and S3-FIFO are plain"
    " implementations, key by key."
)

Keys = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class KeyTrace:
    """Batches of keys below `distinct`; a scan looks up a batch of other keys once."""

    exponent: float
    distinct: int
    batches: int
    scan_every: int | None = None  # every n-th batch is a scan

    @property
    def name(self) -> str:
        """Name in the table."""
        scans = f", a scan in {self.scan_every} batches" if self.scan_every else ""
        return f"Zipf {self.exponent}{scans}"

    def keys(self) -> Iterator[Keys]:
        """Yield the batches."""
        random = np.random.default_rng(SEED)
        weights = np.cumsum(np.arange(1, self.distinct + 1) ** -self.exponent)
        numbers = random.permutation(self.distinct)
        for batch in range(self.batches):
            if self.scan_every and batch % self.scan_every == self.scan_every - 1:
                first = self.distinct + batch * BATCH_KEYS
                yield np.arange(first, first + BATCH_KEYS)
                continue
            ranks = np.searchsorted(weights, random.random(BATCH_KEYS) * weights[-1])
            yield numbers[np.unique(ranks)]


class ComparedCache(Protocol):
    """A cache with room for a number of keys."""

    def look_up(self, batch: Sequence[int]) -> int:
        """Return the number of cached keys, then cache the others."""


class LruKeys:
    """Plain LRU cache."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._keys: OrderedDict[int, None] = OrderedDict()  # least recently used first

    def look_up(self, batch: Sequence[int]) -> int:
        """Return the number of cached keys, then cache the others."""
        return sum(map(self._is_hit, batch))

    def _is_hit(self, key: int) -> bool:
        if key in self._keys:
            self._keys.move_to_end(key)
            return True
        if len(self._keys) >= self._capacity:
            self._keys.popitem(last=False)
        self._keys[key] = None
        return False


class S3FifoKeys:
    """Plain S3-FIFO cache."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._small_capacity = max(int(capacity * _SMALL_SHARE), 1)
        self._small: OrderedDict[int, int] = OrderedDict()  # {key: visits}, oldest first
        self._main: OrderedDict[int, int] = OrderedDict()  # {key: visits}, oldest first
        self._ghosts: OrderedDict[int, None] = OrderedDict()  # oldest first

    def look_up(self, batch: Sequence[int]) -> int:
        """Return the number of cached keys, then cache the others."""
        return sum(map(self._is_hit, batch))

    def _is_hit(self, key: int) -> bool:
        for queue in (self._small, self._main):
            if key in queue:
                queue[key] = min(queue[key] + 1, _MOST_VISITS)
                return True
        while len(self._small) + len(self._main) >= self._capacity:
            self._evict()
        if key in self._ghosts:
            del self._ghosts[key]
            self._main[key] = 0
        else:
            self._small[key] = 0
        return False

    def _evict(self) -> None:
        if len(self._small) < self._small_capacity:
            key, visits = self._main.popitem(last=False)
            if visits:
                self._main[key] = visits - 1
            return
        key, visits = self._small.popitem(last=False)
        if visits >= _VISITS_TO_PROVE:
            self._main[key] = 0
            return
        self._ghosts[key] = None
        while len(self._ghosts) > self._capacity - self._small_capacity:
            self._ghosts.popitem(last=False)


class SidelookKeys:
    """The row cache of a dimension, with the bytes that `capacity` rows need."""

    def __init__(self, capacity: int) -> None:
        filled = RowCache(SCHEMA, CacheSettings(max_bytes=_ROOMY_BYTES))
        for first in range(0, capacity, BATCH_KEYS):
            _fill(filled, np.arange(first, min(first + BATCH_KEYS, capacity)))
        self._cache = RowCache(SCHEMA, CacheSettings(max_bytes=filled.bytes))

    def look_up(self, batch: Sequence[int]) -> int:
        """Return the number of cached keys, then cache the others."""
        numbers = np.asarray(batch, np.int64)
        is_hit = self._cache.probe(_canonical(numbers), 0.0).is_row
        _fill(self._cache, numbers[~is_hit])
        return int(is_hit.sum())


def _fill(cache: RowCache, numbers: Keys) -> None:
    rows = pa.record_batch([pa.array(numbers), pa.array(numbers * 0.5)], schema=SCHEMA.columns)
    has_row = np.ones(len(numbers), np.bool_)
    cache.fill(_canonical(numbers), has_row, rows=rows, read_at=0.0, now=0.0, settles_later=False)


def _canonical(numbers: Keys) -> CanonicalKeys:
    return canonical_keys(pa.record_batch([pa.array(numbers)], schema=SCHEMA.key))


@dataclass(frozen=True, slots=True)
class HitRates:
    """Hits per lookup, 0 to 1, of one trace in caches of one size."""

    trace: str
    capacity: int
    lru: float
    s3_fifo: float
    sidelook: float

    @property
    def has_fault(self) -> bool:
        """Whether the cache is not better than LRU although the trace has scans."""
        return "scan" in self.trace and self.sidelook <= self.lru


def hit_rates(folder: Path, *, is_quick: bool) -> Section:
    """Count the hits of flat and steep traces, without and with scans."""
    del folder
    distinct, batches = QUICK if is_quick else FULL
    rates = [
        _rates(KeyTrace(exponent, distinct, batches, scan_every), int(distinct * share))
        for share in SHARES
        for scan_every in (None, 10, 3)
        for exponent in (0.8, 1.0, 1.2)
    ]
    title = f"Hits in %, {distinct:,} distinct keys, without and with scans"
    headings = ("keys", "room for keys", "LRU", "S3-FIFO", "Sidelook", "to LRU", "to S3-FIFO")
    return Section(
        name="hit-rates",
        title="Hit rates of the cache",
        remarks=[_REMARK],
        tables=[FigureTable(title, headings, [_row(each) for each in rates])],
        faults=[f"no better than LRU: {each.trace}" for each in rates if each.has_fault],
    )


def hit_rate(cache: ComparedCache, trace: KeyTrace) -> float:
    """Return the hits per lookup of the warm cache, 0 to 1."""
    hits = keys = 0
    for number, batch in enumerate(trace.keys()):
        found = cache.look_up(batch.tolist())
        if number >= trace.batches * _WARM:
            hits, keys = hits + found, keys + len(batch)
    return hits / keys


def _rates(trace: KeyTrace, capacity: int) -> HitRates:
    return HitRates(
        trace=trace.name,
        capacity=capacity,
        lru=hit_rate(LruKeys(capacity), trace),
        s3_fifo=hit_rate(S3FifoKeys(capacity), trace),
        sidelook=hit_rate(SidelookKeys(capacity), trace),
    )


def _row(each: HitRates) -> tuple[str, ...]:
    points = [each.sidelook - each.lru, each.sidelook - each.s3_fifo]
    shown = [f"{100 * rate:.1f}" for rate in (each.lru, each.s3_fifo, each.sidelook)]
    differences = [f"{round(100 * point, 1) + 0.0:+.1f}" for point in points]  # + 0.0: no "-0.0"
    return (each.trace, f"{each.capacity:,}", *shown, *differences)
