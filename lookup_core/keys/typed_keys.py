"""Keys of one request in the dimension's exact types, with what is wrong with single ones.

A key that cannot be asked (NULL, wrong type, out of range) never reaches a batch: one of them
would fail the batch for all others.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class TypedKeys:
    """n keys; those at `faults` and at `nulls` are not to be asked, whatever stands there."""

    columns: pa.RecordBatch  # [n] the key's fields, exact types; null where null or faulty
    nulls: npt.NDArray[np.int32]  # positions of keys with any NULL part: they match nothing
    faults: dict[int, ErrorCode]  # {position: why this key can not be asked}

    @property
    def size(self) -> int:
        """How many keys there are, duplicates included."""
        return int(self.columns.num_rows)

    def taken(self, positions: npt.NDArray[np.int32]) -> "TypedKeys":
        """The keys at these positions, which ascend."""
        if len(positions) == self.size:
            return self
        nulls = np.flatnonzero(np.isin(positions, self.nulls)).astype(np.int32)
        faults = {
            at: self.faults[position]
            for at, position in enumerate(positions.tolist() if self.faults else [])
            if position in self.faults
        }
        return TypedKeys(self.columns.take(pa.array(positions)), nulls, faults)

    def part(self, start: int, count: int) -> "TypedKeys":
        """So many of the keys from `start` on, or as many as there are."""
        if not start and count >= self.size:
            return self
        stop = start + count
        nulls = self.nulls[(self.nulls >= start) & (self.nulls < stop)] - np.int32(start)
        faults = {
            position - start: code
            for position, code in self.faults.items()
            if start <= position < stop
        }
        return TypedKeys(self.columns.slice(start, count), nulls, faults)
