"""Input batches on their way into an element queue: pooling, slicing and the byte budget."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from lookup_core.operator.event_time_watermarks import Cut


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of the batch, from `start` up to `stop`, with no watermark inside."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Run:
    """What goes in at once: neighbouring rows, and the watermarks between and behind them."""

    rows: Rows
    elements: tuple[Rows | Cut, ...]


class BatchIntake:
    """Takes a batch apart at its watermarks and at the room there is."""

    def __init__(self, row_count: int, cuts: Sequence[Cut]) -> None:
        self._row_count = row_count
        self._cuts = list(reversed(cuts))  # the next one is the last
        self._taken = 0

    @property
    def places_left(self) -> int:
        """How many places all that is outside would take."""
        return self._row_count - self._taken + len(self._cuts)

    def take(self, *, places: int, rows: int) -> Run:
        """As much as fits into so many places, with at most so many rows."""
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
        """For tests: no watermark that stands before rows already taken is still outside."""
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


class ByteBudget:
    """Bytes of input rows that wait, and of the answers that they will get."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._rows = 0  # in flight
        self._input_bytes = 0  # of those
        self._answered_rows = 0  # since the start
        self._answer_bytes = 0  # of those

    def rows_that_fit(self, row_bytes: int) -> int:
        """How many more rows of this size fit in; at least one while nothing is in flight."""
        answer_bytes = self._mean_answer_bytes
        left = self._max_bytes - self._input_bytes - self._rows * answer_bytes
        fitting = max(left // max(row_bytes + answer_bytes, 1), 0)
        return fitting if self._rows else max(fitting, 1)

    def add(self, rows: int, *, row_bytes: int) -> None:
        """So many rows of this size wait for their answers from now on."""
        self._rows += rows
        self._input_bytes += rows * row_bytes

    def remove(self, rows: int, *, row_bytes: int) -> None:
        """So many of them have left."""
        self._rows -= rows
        self._input_bytes -= rows * row_bytes

    def on_answered(self, rows: int, *, answer_bytes: int) -> None:
        """All rows of a question were answered, with so many bytes."""
        self._answered_rows += rows
        self._answer_bytes += answer_bytes

    def check_invariants(self) -> None:
        """For tests: nothing is counted twice or forgotten."""
        assert self._rows >= 0
        assert self._input_bytes >= 0
        assert self._rows or not self._input_bytes

    @property
    def _mean_answer_bytes(self) -> int:
        return self._answer_bytes // self._answered_rows if self._answered_rows else 0
