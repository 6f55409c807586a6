"""Seeded records of a partition and, by a formula, the expected value of each.

Independent of the code under test.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

KEYS = 200_000  # those that NO_ROW divides have no row
NO_ROW = 17
BATCH_ROWS = 5_000
DISORDER_MS = 300  # how far event times lag behind the latest one
DELAY_MS = 100
INTERVAL_MS = 2_000  # about two watermarks in a batch
SCHEMA = pa.schema({"number": pa.int64(), "key": pa.int64(), "at_ms": pa.int64()})


def value_of(key: int) -> int | None:
    """The value of a key in the dimension."""
    return None if key % NO_ROW == 0 or key >= KEYS else key * 31 % 1_000_003


def dimension() -> pa.Table:
    """The dimension's rows."""
    keys = np.arange(KEYS)
    keys = keys[keys % NO_ROW != 0]
    return pa.table({"key": keys, "value": keys * 31 % 1_000_003})


@dataclass(frozen=True, slots=True)
class Records:
    """The records of one partition, in order."""

    keys: Sequence[int]
    event_times_ms: Sequence[int]

    @classmethod
    def seeded(cls, seed: int, count: int) -> "Records":
        """Half hot keys, half rare keys; event times in some disorder."""
        random = np.random.default_rng(seed)
        hot = random.zipf(1.3, count) % KEYS
        cold = random.integers(0, KEYS + KEYS // 10, count)
        keys = np.where(random.random(count) < 0.5, hot, cold)
        times = np.arange(count) - random.integers(0, DISORDER_MS, count)
        return cls(keys.tolist(), times.tolist())

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The batches that Spark gives to a task."""
        numbers = np.arange(len(self.keys))
        whole = pa.record_batch([numbers, self.keys, self.event_times_ms], schema=SCHEMA)
        for start in range(0, len(self.keys), BATCH_ROWS):
            yield whole.slice(start, BATCH_ROWS)

    def segments(self) -> list[int]:
        """The number of watermarks before each record."""
        return self._cut()[0]

    def watermarks_ms(self) -> list[int]:
        """The watermark after each segment."""
        return self._cut()[1]

    def _cut(self) -> tuple[list[int], list[int]]:
        segments: list[int] = []
        watermarks_ms: list[int] = []
        largest_ms, cut_at_ms = -DISORDER_MS, self.event_times_ms[0]
        for number, time_ms in enumerate(self.event_times_ms, start=1):
            segments.append(len(watermarks_ms))
            largest_ms = max(largest_ms, time_ms)
            if largest_ms >= cut_at_ms + INTERVAL_MS or number % BATCH_ROWS == 0:
                watermarks_ms.append(largest_ms - DELAY_MS - 1)
                cut_at_ms = largest_ms
        return segments, watermarks_ms
