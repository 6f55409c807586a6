"""How many rows may be asked about at once, so that rows and answers in flight stay small.

An estimate from the answers seen so far, not an account: what counts exactly is the capacity.
"""


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
