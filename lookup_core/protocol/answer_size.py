"""How many bytes the answer to one record will have: a guess that seldom falls short.

Mean and mean deviation are estimated as those of round trips are in TCP (Jacobson, "Congestion
avoidance and control", SIGCOMM 1988). An estimate, not an account: that is `answer_budget`.
"""

_GUESS_BYTES = 1024 * 1024  # while no row was seen: few are larger, and a first look is soon back
_LEAST_GUESS_BYTES = 16 * 1024
_GAIN = 1 / 8
_DEVIATION_GAIN = 1 / 4
_DEVIATIONS = 4


class AnswerSize:
    """Of the records of one channel, as if each of them had a row: the next ones may."""

    def __init__(self) -> None:
        self._guess_bytes = float(_GUESS_BYTES)
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

    def on_no_rows(self) -> None:
        """An answer had no rows: the longer there are none, the less is it worth to be cautious."""
        self._guess_bytes = max(self._guess_bytes * (1 - _GAIN), _LEAST_GUESS_BYTES)
