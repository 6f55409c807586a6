"""One input batch on its way into an element queue: what of it is still outside.

Says which rows and watermarks go in next; whether there is room is the caller's to know.
"""

from collections.abc import Sequence
from dataclasses import dataclass

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
