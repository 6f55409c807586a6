"""Which keys are asked for, batch by batch: Zipf's law, and the same with scans in between.

The same numbers give the same keys on every machine; the keys of a batch are distinct.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bench.workload import SEED

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
