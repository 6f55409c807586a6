"""A process that changes a shared cache at full speed, and processes that read it meanwhile.

Values are derived from keys and versions. Before a version becomes the least that readers may see,
the writer invalidates the former ones.
"""

import mmap
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.cache.cache_view import CacheView, EntryReader
from lookup_core.cache.cached_answers import CacheDescription
from lookup_core.cache.entry_states import Lifetimes
from lookup_core.cache.row_cache import RowCache
from lookup_core.cache.shared_layout import LockFence
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.keys.canonical_keys import CanonicalKeys, canonical_keys
from lookup_core.settings import CacheSettings
from lookup_core.statistics import EvictionReason
from service.resources.shared_memory import SharedMemory, boot_time
from spark_client.transport.shared_cache import MappedCache
from tests.lookup_core.cache.broken_reader import broken_reader

KEYS = 12_000
VERSIONS = 10**9  # of a key, at most
ADDRESSES = 10_000  # few, so that they are reused after some changes
MAX_BYTES = 600_000  # room for about a quarter of the keys
MISSING_SHARE = 4  # each fourth version of a key is a negative entry
READ_KEYS = 10_000  # of one read
WRITTEN_KEYS = 100  # of one change
SETTINGS = CacheSettings(max_bytes=MAX_BYTES, ttl_s=3_600.0, negative_ttl_s=3_600.0)
SCHEMAS = {
    "number": DimensionSchema(pa.schema({"id": pa.int64()}), pa.schema({"value": pa.int64()})),
    "text": DimensionSchema(pa.schema({"id": pa.utf8()}), pa.schema({"value": pa.int64()})),
}
Integers = npt.NDArray[np.int64]


class Counter(IntEnum):
    """The numbers that the processes share, behind the least versions of the keys."""

    IS_OVER = KEYS
    CHANGES = KEYS + 1
    EVICTED = KEYS + 2
    READERS = KEYS + 8  # from here on, `ReaderCount` for each reader


class ReaderCount(IntEnum):
    """The counts of one reader."""

    PROBED = 0
    HITS = 1
    MISSING = 2
    WRONG = 3  # values of another key, or torn ones
    OLD = 4  # versions that were invalidated before the probe
    SIZE = 8


@dataclass(frozen=True, slots=True)
class Race:
    """One writer and some readers of one cache, in a folder in memory."""

    folder: Path
    kind: str

    def numbers(self) -> Integers:
        """The shared numbers."""
        path = self.folder / "numbers"
        size = 8 * (Counter.READERS + 8 * ReaderCount.SIZE)
        with path.open("ab+") as file:
            file.truncate(size)
            return np.frombuffer(mmap.mmap(file.fileno(), size), np.int64)

    def keys(self) -> CanonicalKeys:
        """All keys."""
        numbers = pa.array(range(KEYS), pa.int64())
        column = numbers.cast(self.schema.key.field(0).type)
        return canonical_keys(pa.record_batch([column], schema=self.schema.key))

    @property
    def schema(self) -> DimensionSchema:
        """The schema of the dimension."""
        return SCHEMAS[self.kind]

    @property
    def cache(self) -> Path:
        """The folder of the cache."""
        return self.folder / "cache"

    def counts(self, reader: int) -> Integers:
        """The counts of a reader."""
        first = Counter.READERS + reader * ReaderCount.SIZE
        return self.numbers()[first : first + ReaderCount.SIZE]


def write(race: Race) -> None:
    """Fill, invalidate and evict until the race is over."""
    memory = SharedMemory("customers", race.cache, CacheDescription(race.schema, 0, SETTINGS))
    cache = RowCache(race.schema, SETTINGS, memory)
    cache.entries.rows._address_count = ADDRESSES
    keys, least, fence = race.keys(), race.numbers(), LockFence(threading.Lock())
    random = np.random.default_rng(1)
    change = 0
    while not least[Counter.IS_OVER]:
        memory.extend_lease()
        chosen = np.sort(random.choice(KEYS, WRITTEN_KEYS, replace=False)).astype(np.int32)
        changed = keys.take(chosen)
        cache.invalidate(changed)
        fence()
        least[chosen] += 1
        fence()
        versions = least[chosen]
        has_row = versions % MISSING_SHARE != 0
        values = chosen[has_row].astype(np.int64) * VERSIONS + versions[has_row]
        rows = pa.record_batch([pa.array(values, pa.int64())], schema=race.schema.columns)
        now = boot_time()
        cache.fill(
            *(changed, has_row), rows=rows, read_at=now, now=now, settles_later=change % 2 == 0
        )
        cache.settle(now)
        change += 1
        if change % 500 == 0:
            cache.clear()
        least[Counter.CHANGES] = change
        least[Counter.EVICTED] = cache.statistics().evictions[EvictionReason.SIZE]


def read(race: Race, number: int, faults: Mapping[str, str]) -> None:
    """Read until the race is over, and count what is wrong; `faults` are those of the reader."""
    cache = MappedCache(race.cache) if not faults else FaultyCache(race.cache, faults)
    keys, least, fence = race.keys(), race.numbers(), LockFence(threading.Lock())
    counts, random = race.counts(number), np.random.default_rng(number)
    while not least[Counter.IS_OVER]:
        chosen = random.integers(0, KEYS, READ_KEYS).astype(np.int32)
        before = least.take(chosen)
        fence()
        reader = cache.reader()
        if reader is None:
            continue
        found = reader.read(keys.take(chosen), ["value"], boot_time())
        fence()
        after = least.take(chosen)
        counts[ReaderCount.PROBED] += READ_KEYS
        rows, missing = found.rows.positions, found.missing.positions
        counts[ReaderCount.HITS] += len(rows)
        counts[ReaderCount.MISSING] += len(missing)
        values = found.rows.rows.column(0).to_numpy()
        versions = values % VERSIONS
        is_wrong = (values // VERSIONS != chosen[rows]) | (versions % MISSING_SHARE == 0)
        counts[ReaderCount.WRONG] += int((is_wrong | (versions > after[rows])).sum())
        counts[ReaderCount.OLD] += int((~is_wrong & (versions < before[rows])).sum())
        # A negative entry of a version between both.
        last = after[missing] // MISSING_SHARE * MISSING_SHARE
        counts[ReaderCount.OLD] += int((last < before[missing]).sum())
        if number == 0:
            cache.release()


class FaultyCache(MappedCache):
    """A shared cache whose readers lack checks."""

    def __init__(self, folder: Path, faults: Mapping[str, str]) -> None:
        self._make = broken_reader(faults)
        super().__init__(folder)

    def _reader_of(self, view: CacheView, number: int) -> EntryReader:
        del number
        return self._make(view, Lifetimes(SETTINGS), self._fence)
