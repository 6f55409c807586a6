"""Builders for the tests of the row cache: kinds of dimensions, their keys and rows.

States nothing of what the cache should answer: that is in the tests.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lookup_core.cache.dimension_cache import Probe
from lookup_core.cache.row_cache import RowCache
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.keys.canonical_keys import CanonicalKeys, SingleKey, canonical_keys
from lookup_core.settings import CacheSettings
from lookup_core.statistics import EvictionReason
from lookup_core.table.full_table import FullTable

TTL_S = 8.0
NEGATIVE_TTL_S = 2.0
OVERHEAD_BYTES = 13_440  # of a cache without rows


@dataclass(frozen=True, slots=True)
class CacheKind:
    """A dimension whose keys and rows are made of numbers."""

    schema: DimensionSchema
    hash_count: int | None = None  # number of different hashes; None: as the keys have them

    def keys(self, numbers: Sequence[int]) -> CanonicalKeys:
        """The keys of these numbers."""
        columns = [_column(numbers, field.type) for field in self.schema.key]
        keys = canonical_keys(pa.record_batch(columns, schema=self.schema.key))
        if self.hash_count is None:
            return keys
        return CanonicalKeys(keys.hashes % np.uint64(self.hash_count), keys.parts)

    def key(self, number: int) -> SingleKey:
        """The key of one number."""
        keys = self.keys([number])
        return SingleKey(int(keys.hashes[0]), None if keys.parts is None else keys.parts[0].as_py())

    def rows(self, values: Sequence[int]) -> pa.RecordBatch:
        """Rows that show these values."""
        if not len(self.schema.columns):
            return pa.record_batch({"x": pa.array(values, pa.int64())}).select([])
        columns = [_column(values, field.type) for field in self.schema.columns]
        return pa.record_batch(columns, schema=self.schema.columns)

    def cache(
        self,
        *,
        max_bytes: int = 2**20,
        negative_ttl_s: float = NEGATIVE_TTL_S,
        ttl_jitter: float = 0.0,
        stay_s: float = 0.0,
    ) -> RowCache:
        """A cache of this dimension; expired rows stay for `stay_s`."""
        settings = CacheSettings(
            max_bytes=max_bytes,
            ttl_s=TTL_S,
            negative_ttl_s=negative_ttl_s,
            ttl_jitter=ttl_jitter,
            stale_if_error_s=stay_s,
        )
        return RowCache(self.schema, settings)

    def fill(
        self, cache: RowCache, numbers: Sequence[int], missing: Sequence[int] = (), *, now: float
    ) -> None:
        """Keep rows that show their key's number, and negative entries for the missing keys."""
        has_row = np.array([True] * len(numbers) + [False] * len(missing), np.bool_)
        keys = self.keys([*numbers, *missing])
        cache.fill(
            keys, has_row, rows=self.rows(numbers), read_at=now, now=now, settles_later=False
        )
        cache.check_invariants()

    def found(self, cache: RowCache | FullTable, probe: Probe) -> list[object]:
        """What a probe found of each key: its row's values (fresh or stale), "missing" or None."""
        hits = np.flatnonzero(probe.is_row | probe.is_stale)
        gathered = cache.rows(probe.slots[hits], self.schema.columns.names)
        found: list[object] = ["missing" if missing else None for missing in probe.is_missing]
        for at, row in zip(hits[gathered.order].tolist(), tuples(gathered.rows), strict=True):
            found[at] = row
        return found

    def found_at(self, cache: RowCache, numbers: Sequence[int], now: float) -> list[object]:
        """The same of these numbers, without a visit."""
        return self.found(cache, cache.peek(self.keys(numbers), now))

    def hit(self, cache: RowCache | FullTable, number: int, now: float) -> object:
        """What is found of one key alone, as `found` shows it; None if it is no hit."""
        hit = cache.hit(self.key(number), now)
        if hit is None:
            return None
        columns = hit.row.columns[len(hit.row.columns) - len(self.schema.columns) :]
        return tuple(column[hit.row.at].as_py() for column in columns)

    def row(self, value: int) -> object:
        """How `found` shows the row with this value."""
        return next(iter(tuples(self.rows([value]))))


def evictions(cache: RowCache) -> dict[EvictionReason, int]:
    """How many entries left the cache, by reason, without the zeros."""
    return {reason: count for reason, count in cache.statistics().evictions.items() if count}


def _column(numbers: Sequence[int], kind: pa.DataType) -> pa.Array:
    if pa.types.is_string(kind):
        return pa.array([f"number {number}" for number in numbers], kind)
    return pa.array(numbers, pa.int64()).cast(kind)


def tuples(rows: pa.RecordBatch) -> list[tuple[object, ...]]:
    """The values of each row."""
    columns = [column.to_pylist() for column in rows.columns]
    return [tuple(column[at] for column in columns) for at in range(rows.num_rows)]


_ID = pa.schema({"id": pa.int64()})
_NAME = pa.schema({"name": pa.utf8()})
_PAIR = pa.schema({"origin": pa.utf8(), "hour": pa.timestamp("us")})
_COLUMNS = pa.schema({"position": pa.int64(), "text": pa.utf8()})
_NOTHING = pa.schema([])

KINDS = {
    "number": CacheKind(DimensionSchema(_ID, _COLUMNS)),
    "text": CacheKind(DimensionSchema(_NAME, _COLUMNS)),
    "composite": CacheKind(DimensionSchema(_PAIR, _COLUMNS)),
    "equal hashes": CacheKind(DimensionSchema(_NAME, _COLUMNS), hash_count=32),
    "number, no columns": CacheKind(DimensionSchema(_ID, _NOTHING)),
    "text, no columns": CacheKind(DimensionSchema(_NAME, _NOTHING)),
}
