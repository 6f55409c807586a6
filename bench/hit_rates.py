"""Hit rates of the cache against plain LRU and S3-FIFO key by key."""

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

BATCH_KEYS = 1_000

Keys = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class KeyTrace:
    """`batches` batches of keys below `distinct`; a scan asks once for keys beyond."""

    exponent: float
    distinct: int
    batches: int
    scan_every: int | None = None  # one batch of so many is a scan

    @property
    def name(self) -> str:
        """How a table calls it."""
        scans = f", a scan in {self.scan_every} batches" if self.scan_every else ""
        return f"Zipf {self.exponent}{scans}"

    def keys(self) -> Iterator[Keys]:
        """The batches."""
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


def key_traces(distinct: int, batches: int) -> list[KeyTrace]:
    """Flat to steep, each without and with scans."""
    return [
        KeyTrace(exponent, distinct, batches, scan_every)
        for scan_every in (None, 10, 3)
        for exponent in (0.8, 1.0, 1.2)
    ]


class LruKeys:
    """A cache of so many keys."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._keys: OrderedDict[int, None] = OrderedDict()  # least recently used first

    def ask(self, batch: Sequence[int]) -> int:
        """How many of the keys were here; all of them are now."""
        return sum(self._ask(key) for key in batch)

    def _ask(self, key: int) -> bool:
        if key in self._keys:
            self._keys.move_to_end(key)
            return True
        if len(self._keys) >= self._capacity:
            self._keys.popitem(last=False)
        self._keys[key] = None
        return False


_SMALL_SHARE = 0.1
_MOST_VISITS = 3
_VISITS_TO_PROVE = 2


class S3FifoKeys:
    """A cache of so many keys."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._small_capacity = max(int(capacity * _SMALL_SHARE), 1)
        self._small: OrderedDict[int, int] = OrderedDict()  # {key: visits}, oldest first
        self._main: OrderedDict[int, int] = OrderedDict()  # {key: visits}, oldest first
        self._ghosts: OrderedDict[int, None] = OrderedDict()  # oldest first

    def ask(self, batch: Sequence[int]) -> int:
        """How many of the keys were here; all of them are now."""
        return sum(self._ask(key) for key in batch)

    def _ask(self, key: int) -> bool:
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
        if len(self._small) >= self._small_capacity:
            self._evict_small()
        else:
            self._evict_main()

    def _evict_small(self) -> None:
        key, visits = self._small.popitem(last=False)
        if visits >= _VISITS_TO_PROVE:
            self._main[key] = 0
            return
        self._ghosts[key] = None
        while len(self._ghosts) > self._capacity - self._small_capacity:
            self._ghosts.popitem(last=False)

    def _evict_main(self) -> None:
        key, visits = self._main.popitem(last=False)
        if visits:
            self._main[key] = visits - 1


FULL = (1_000_000, 3_000)  # distinct keys, batches
QUICK = (100_000, 200)
SHARES = (0.01, 0.1)  # of the distinct keys that a cache has room for
_WARM = 0.25  # of the batches, which are not counted
_ROOMY_BYTES = 2**32
_FILL_KEYS = 1_000
_REMARK = (
    "Batches of distinct keys through caches with room for some of them, the first quarter not"
    " counted; the keys of scans count as asked for, so that no cache can have them. LRU and"
    " S3-FIFO are plain ones, key by key."
)

SCHEMA = DimensionSchema(
    pa.schema({"id": pa.int64()}), pa.schema({"tier": pa.int64(), "score": pa.float64()})
)


class AskedCache(Protocol):
    """What is compared."""

    def ask(self, batch: Sequence[int]) -> int:
        """How many of the distinct keys were here; then the others come in."""


@dataclass(frozen=True, slots=True)
class HitRates:
    """Hits by keys asked for, of one trace in caches of one size, 0 to 1."""

    trace: str
    capacity: int
    lru: float
    s3_fifo: float
    sidelook: float

    @property
    def has_fault(self) -> bool:
        """Whether scans did what they must not: make the cache no better than LRU."""
        return "scan" in self.trace and self.sidelook <= self.lru


class SidelookKeys:
    """The cache of a dimension, with room for so many keys."""

    def __init__(self, capacity: int) -> None:
        self._cache = RowCache(SCHEMA, CacheSettings(max_bytes=bytes_of(capacity)))

    def ask(self, batch: Sequence[int]) -> int:
        """How many of the keys were here; then the others are kept, if the cache likes."""
        numbers = np.asarray(batch, np.int64)
        is_hit = self._cache.probe(_keys(numbers), 0.0).is_row
        _fill(self._cache, numbers[~is_hit])
        return int(is_hit.sum())


def hit_rates(folder: Path, *, is_quick: bool) -> Section:
    """Count the hits of each trace; no better than LRU where there are scans is wrong."""
    del folder
    distinct, batches = QUICK if is_quick else FULL
    rates = [
        _rates(trace, int(distinct * share))
        for share in SHARES
        for trace in key_traces(distinct, batches)
    ]
    return Section(
        name="hit-rates",
        title="Hit rates of the cache",
        remarks=[_REMARK],
        tables=[_table(rates, distinct=distinct)],
        faults=[f"no better than LRU: {each.trace}" for each in rates if each.has_fault],
    )


def bytes_of(capacity: int) -> int:
    """How many bytes the cache of a dimension needs for so many keys."""
    cache = RowCache(SCHEMA, CacheSettings(max_bytes=_ROOMY_BYTES))
    for first in range(0, capacity, _FILL_KEYS):
        _fill(cache, np.arange(first, min(first + _FILL_KEYS, capacity)))
    return cache.bytes


def hit_rate(cache: AskedCache, trace: KeyTrace) -> float:
    """Hits by keys asked for once the cache is warm, 0 to 1."""
    hits = asked = 0
    for number, batch in enumerate(trace.keys()):
        found = cache.ask(batch.tolist())
        if number >= trace.batches * _WARM:
            hits, asked = hits + found, asked + len(batch)
    return hits / asked


def _rates(trace: KeyTrace, capacity: int) -> HitRates:
    return HitRates(
        trace=trace.name,
        capacity=capacity,
        lru=hit_rate(LruKeys(capacity), trace),
        s3_fifo=hit_rate(S3FifoKeys(capacity), trace),
        sidelook=hit_rate(SidelookKeys(capacity), trace),
    )


def _fill(cache: RowCache, numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
    rows = pa.record_batch([pa.array(numbers), pa.array(numbers * 0.5)], schema=SCHEMA.columns)
    has_row = np.ones(len(numbers), np.bool_)
    cache.fill(_keys(numbers), has_row, rows=rows, read_at=0.0, now=0.0)


def _keys(numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> CanonicalKeys:
    return canonical_keys(pa.record_batch([pa.array(numbers)], schema=SCHEMA.key))


def _table(rates: Sequence[HitRates], *, distinct: int) -> FigureTable:
    title = f"Hits in %, {distinct:,} distinct keys, and what scans add"
    headings = ("keys", "room for keys", "LRU", "S3-FIFO", "Sidelook", "to LRU", "to S3-FIFO")
    return FigureTable(title, headings, [_row(each) for each in rates])


def _row(each: HitRates) -> tuple[str, ...]:
    points = [each.sidelook - each.lru, each.sidelook - each.s3_fifo]
    shown = [f"{100 * rate:.1f}" for rate in (each.lru, each.s3_fifo, each.sidelook)]
    # Not -0.0, which is no less than none.
    differences = [f"{round(100 * point, 1) + 0.0:+.1f}" for point in points]
    return (each.trace, f"{each.capacity:,}", *shown, *differences)
