"""How many bytes the answer to one record will have: a guess that seldom falls short.

Mean and mean deviation are estimated as those of round trips are in TCP (Jacobson, "Congestion
avoidance and control", SIGCOMM 1988). An estimate, not an account: that is `answer_budget`.
"""

FIRST_GUESS_BYTES = 1024 * 1024  # while no row was seen: few are larger, and it is soon known
_LEAST_GUESS_BYTES = 4 * 1024
_GAIN = 1 / 8
_ABSENT_GAIN = 1 / 64  # after some hundred absences the largest rows are forgotten
_DEVIATION_GAIN = 1 / 4
_DEVIATIONS = 4


class AnswerSize:
    """Of the records of one channel, as if each of them had a row: the next ones may.

    `guess_bytes` is what a record has while no row was seen.
    """

    def __init__(self, guess_bytes: int = FIRST_GUESS_BYTES) -> None:
        self._guess_bytes = float(guess_bytes)
        self._least_bytes = min(guess_bytes, _LEAST_GUESS_BYTES)
        self._mean_bytes: float | None = None  # None: no row was seen
        self._deviation_bytes = 0.0

    @property
    def record_bytes(self) -> int:
        """What to reserve for one record; at least one byte."""
        if self._mean_bytes is None:
            return int(self._guess_bytes)
        return int(self._mean_bytes + _DEVIATIONS * self._deviation_bytes) + 1

    def on_rows(self, records: int, answer_bytes: int) -> None:
        """An answer with rows to so many records, not none, has so many bytes."""
        found_bytes = answer_bytes / records
        if self._mean_bytes is None:
            self._mean_bytes, self._deviation_bytes = found_bytes, found_bytes / 2
            return
        error_bytes = found_bytes - self._mean_bytes
        self._mean_bytes += _GAIN * error_bytes
        self._deviation_bytes += _DEVIATION_GAIN * (abs(error_bytes) - self._deviation_bytes)

    def on_no_rows(self, records: int) -> None:
        """So many records had no rows: the more there are, the less is it worth to be cautious.

        What was seen of rows fades, too, but slowly, and not below what is small.
        """
        if self._mean_bytes is None:
            guess_bytes = self._guess_bytes * (1 - _GAIN) ** records
            self._guess_bytes = max(guess_bytes, self._least_bytes)
        elif self.record_bytes > _LEAST_GUESS_BYTES:
            left = (1 - _ABSENT_GAIN) ** records
            self._mean_bytes *= left
            self._deviation_bytes *= left
