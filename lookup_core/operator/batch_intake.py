"""Input batches of an element queue: pooling, splitting at watermarks, and the byte budget."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from lookup_core.compatibility import concat_batches
from lookup_core.event_time.record_watermarks import Cut

FIRST_ROWS = 8  # while the size of an answer is not known: 64 MiB of rows of the default limit
_MAX_POOLING_S = 0.05  # a batch waits at most this long for others
_GROWTH = 4  # further rows in flight for each answered row, so that a few small ones prove little
_KNOWN_ROWS = 1_000  # answers that show the size of others
_MEAN_ROWS = 2_000  # about: the last answers, which give the expected size of the next ones


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows [start, stop) of a batch, without a watermark between them."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive rows and watermarks that enter the queue together."""

    rows: Rows
    elements: tuple[Rows | Cut, ...]


class BatchIntake:
    """Splits a batch at its watermarks and at the free places of the queue."""

    def __init__(self, row_count: int, cuts: Sequence[Cut]) -> None:
        self._row_count = row_count
        self._cuts = list(reversed(cuts))  # a stack: the next cut is the last
        self._taken = 0

    @property
    def places_left(self) -> int:
        """The number of places that the rest of the batch needs."""
        return self._row_count - self._taken + len(self._cuts)

    def next_run(self, *, places: int, rows: int) -> Run:
        """The next elements that fit into these places, with at most this many rows."""
        start = self._taken
        most = min(start + rows, self._row_count)
        elements: list[Rows | Cut] = []
        while places > 0:
            element = self._next(min(most, self._taken + places))
            if element is None:
                break
            elements.append(element)
            places -= element.stop - element.start if isinstance(element, Rows) else 1
        return Run(Rows(start, self._taken), tuple(elements))

    def check_invariants(self) -> None:
        """For tests: no watermark is left that precedes rows already taken."""
        assert 0 <= self._taken <= self._row_count
        assert all(self._taken <= cut.rows <= self._row_count for cut in self._cuts)

    def _next(self, most: int) -> Rows | Cut | None:
        cut = self._cuts[-1] if self._cuts else None
        if cut is not None and cut.rows == self._taken:
            return self._cuts.pop()
        stop = most if cut is None else min(most, cut.rows)
        if stop <= self._taken:
            return None
        start, self._taken = self._taken, stop
        return Rows(start, stop)


class BatchPool:
    """Joins small batches of one schema, up to about `most_rows` rows or `most_bytes` bytes."""

    def __init__(self, *, most_rows: int, most_bytes: int) -> None:
        self._most_rows = most_rows
        self._most_bytes = most_bytes
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0
        self.due_s: float | None = None  # when the first batch has waited long enough; monotonic

    def __bool__(self) -> bool:
        """Whether there is a batch."""
        return bool(self._batches)

    @property
    def is_full(self) -> bool:
        """Whether a further batch should wait for the next turn."""
        return self._rows >= self._most_rows or self._bytes >= self._most_bytes

    def add_batch(self, batch: pa.RecordBatch, *, now_s: float) -> None:
        """Add a batch."""
        if self.due_s is None:
            self.due_s = now_s + _MAX_POOLING_S
        self._batches.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes

    def take_rows(self) -> pa.RecordBatch:
        """Remove all rows, in order; there must be a batch."""
        batches, self._batches = self._batches, []
        self._rows = self._bytes = 0
        self.due_s = None
        return batches[0] if len(batches) == 1 else concat_batches(batches)


class ByteBudget:
    """Byte budget of rows in flight: their input, and the answers expected for them."""

    def __init__(self, max_bytes: int, answer_bytes: int | None = None) -> None:
        """`answer_bytes`: of each answer, if all have the same size."""
        self._max_bytes = max_bytes
        self._fixed_bytes = answer_bytes
        self._rows = 0  # in flight
        self._input_bytes = 0
        self._answered_rows = 0.0  # for the mean size of an answer; older ones count less
        self._answer_bytes = 0.0

    def rows_that_fit(self, row_bytes: int) -> int:
        """How many more rows of this size fit; at least one while no row is in flight."""
        answer_bytes = self._expected_bytes()
        left = self._max_bytes - self._input_bytes - self._rows * answer_bytes
        fitting = int(left // max(row_bytes + answer_bytes, 1))
        if self._fixed_bytes is None and self._answered_rows < _KNOWN_ROWS:
            most = FIRST_ROWS + int(_GROWTH * self._answered_rows)
            fitting = min(fitting, most - self._rows)
        return max(fitting, 0 if self._rows else 1)

    def add_rows(self, rows: int, *, row_bytes: int) -> None:
        """Count rows of this size as in flight."""
        self._rows += rows
        self._input_bytes += rows * row_bytes

    def remove_rows(self, rows: int, *, row_bytes: int) -> None:
        """Count rows of this size as emitted."""
        self._rows -= rows
        self._input_bytes -= rows * row_bytes

    def on_answered(self, rows: float, *, answer_bytes: int) -> None:
        """Learn the size of the answers to these rows."""
        share = min(_MEAN_ROWS / max(self._answered_rows, 1), 1)
        self._answered_rows = share * self._answered_rows + rows
        self._answer_bytes = share * self._answer_bytes + answer_bytes

    def _expected_bytes(self) -> float:
        if self._answered_rows:
            return self._answer_bytes / self._answered_rows
        return self._fixed_bytes or 0

    def check_invariants(self) -> None:
        """For tests: counts are not negative, and no bytes remain without rows."""
        assert self._rows >= 0
        assert self._input_bytes >= 0
        assert self._rows or not self._input_bytes
