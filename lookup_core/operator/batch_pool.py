"""Batches of a quick input, joined: a few thousand rows cost a lookup little more than a few.

Only what is there anyhow is waited for, all of it together for a moment: after that, and after a
pause, everything goes on at once. Says when it is enough; who reads the input waits.
"""

import pyarrow as pa

QUICK_S = 0.05  # an input that has let wait so long is not worth to be waited for again


class BatchPool:
    """Up to about `most_rows` rows of one schema, and about `most_bytes`."""

    def __init__(self, *, most_rows: int, most_bytes: int) -> None:
        self._most_rows = most_rows
        self._most_bytes = most_bytes
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0
        self._waited_s = 0.0  # for all that is here

    def __bool__(self) -> bool:
        """Whether any batch is here."""
        return bool(self._batches)

    @property
    def wants_more(self) -> bool:
        """Whether the next batch is worth waiting for."""
        has_room = self._rows < self._most_rows and self._bytes < self._most_bytes
        return not self._batches or (has_room and self._waited_s < QUICK_S)

    def add(self, batch: pa.RecordBatch, *, waited_s: float) -> None:
        """One more batch, which was waited for so long."""
        self._batches.append(batch)
        self._rows += max(batch.num_rows, 1)  # else batches without rows would never be enough
        self._bytes += batch.nbytes
        self._waited_s += waited_s

    def take(self) -> pa.RecordBatch | None:
        """All rows that are here, in order; None without a batch."""
        batches, self._batches = self._batches, []
        self._rows = self._bytes = 0
        self._waited_s = 0.0
        if len(batches) < 2:  # as it came, without a copy
            return batches[0] if batches else None
        return pa.concat_batches(batches)
