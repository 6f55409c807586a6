"""Row copies: what was known of a few keys, to be compared with later reads."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.cache.cache_view import Gathered
from lookup_core.cache.dimension_cache import Probe
from lookup_core.compatibility import concat_batches
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.keys.canonical_keys import Hashes, is_among
from lookup_core.table.reload import same_rows

Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.intp]

_MAX_COPIED_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class KnownRows:
    """The rows of n keys."""

    has_row: Mask  # [n]
    rows: pa.RecordBatch  # [n] undefined where there is none

    @classmethod
    def of_numbers(cls, row_of: npt.NDArray[np.integer], rows: pa.RecordBatch) -> "KnownRows":
        """Key i has row `row_of[i]`; a negative number is none."""
        has_row = row_of >= 0
        return cls(has_row, rows.take(pa.array(row_of, pa.int64(), mask=~has_row)))

    @classmethod
    def of_cache(cls, probe: Probe, gathered: Gathered) -> "KnownRows":
        """The fresh rows of a probe, which are all that were gathered."""
        row_of = np.full(len(probe.slots), -1, np.int64)
        row_of[np.flatnonzero(probe.is_row)[gathered.order]] = np.arange(gathered.rows.num_rows)
        return cls.of_numbers(row_of, gathered.rows)

    def take(self, places: Positions) -> "KnownRows":
        """Those of the keys at these places."""
        return KnownRows(self.has_row[places], self.rows.take(pa.array(places)))

    def differ(self, others: "KnownRows") -> Mask:
        """Which keys have another row there, or a row only here or there."""
        has_both = self.has_row & others.has_row
        return (self.has_row != others.has_row) | (has_both & ~same_rows(self.rows, others.rows))


class RowCopies:
    """Copies of at most `capacity` keys, and of 1 MiB or one row, oldest first."""

    def __init__(self, schema: DimensionSchema, capacity: int) -> None:
        self._capacity = capacity
        self.hashes: Hashes = np.zeros(0, np.uint64)
        self.columns = pa.RecordBatch.from_pylist([], schema=schema.key)
        self._rows = KnownRows(
            np.zeros(0, np.bool_), pa.RecordBatch.from_pylist([], schema=schema.columns)
        )

    def __len__(self) -> int:
        return len(self.hashes)

    def add(self, hashes: Hashes, columns: pa.RecordBatch, rows: KnownRows) -> None:
        """Add distinct keys that are not here, as long as there is room."""
        room = self._room(rows.rows)
        if not room:
            return
        hashes, columns, rows = hashes[:room], columns.slice(0, room), rows.take(np.arange(room))
        self.hashes = np.concatenate((self.hashes, hashes))
        self.columns = concat_batches([self.columns, columns])
        self._rows = KnownRows(
            np.concatenate((self._rows.has_row, rows.has_row)),
            concat_batches([self._rows.rows, rows.rows]),
        )

    def forget(self, hashes: Hashes | None) -> None:
        """Remove keys, or all for None."""
        if hashes is None:
            hashes = self.hashes
        if len(self.hashes) and len(hashes):
            left = np.flatnonzero(~is_among(self.hashes, hashes))
            if len(left) < len(self.hashes):
                self._keep(left)

    def of(self, hashes: Hashes) -> tuple[Positions, KnownRows]:
        """Which of these distinct keys have copies, and the copies."""
        _, at, own = np.intersect1d(hashes, self.hashes, assume_unique=True, return_indices=True)
        return at, self._rows.take(own)

    def _room(self, rows: pa.RecordBatch) -> int:
        """How many of these rows, from the first one on, may be added."""
        room = min(self._capacity - len(self), rows.num_rows)
        left = _MAX_COPIED_BYTES - self._rows.rows.nbytes
        least = min(int(not len(self)), room)
        while room > least and rows.slice(0, room).nbytes > left:
            room //= 2
        return room

    def _keep(self, places: Positions) -> None:
        self.hashes = self.hashes[places]
        self.columns = self.columns.take(pa.array(places))
        self._rows = self._rows.take(places)
