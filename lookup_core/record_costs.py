"""Learned costs of records: the bytes of an answer, and the time of a lookup."""

from dataclasses import dataclass, field

FIRST_GUESS_BYTES = 1024 * 1024  # before the first row; few rows are larger
_LEAST_GUESS_BYTES = 4 * 1024
_GAIN = 1 / 8
_MISSING_GAIN = 1 / 64  # some hundred missing keys outweigh large rows
_DEVIATION_GAIN = 1 / 4
_DEVIATIONS = 4

_PART_S = 0.004  # target for the time that a part of a lookup blocks the event loop
_MAX_PART_RECORDS = 20_000
# In smaller parts the fixed cost dominates; counted as cost of records, it would shrink the next
# part further.
_MIN_PART_RECORDS = 800
_FIRST_RECORD_S = 5e-6  # cautious
_TIME_GAIN = 0.5


@dataclass(slots=True, eq=False)
class AnswerSize:
    """Estimated answer bytes of a record, if it has a row.

    After the TCP retransmission timer: mean plus four mean deviations.
    """

    record_bytes: int = FIRST_GUESS_BYTES  # to reserve; at least 1
    _mean_bytes: float | None = None  # None before the first row
    _deviation_bytes: float = 0.0

    def on_rows(self, records: int, answer_bytes: int) -> None:
        """Learn from an answer with rows, to at least one record."""
        found_bytes = answer_bytes / records
        if self._mean_bytes is None:
            self._mean_bytes, self._deviation_bytes = found_bytes, found_bytes / 2
        else:
            error_bytes = found_bytes - self._mean_bytes
            self._mean_bytes += _GAIN * error_bytes
            self._deviation_bytes += _DEVIATION_GAIN * (abs(error_bytes) - self._deviation_bytes)
        self.record_bytes = int(self._mean_bytes + _DEVIATIONS * self._deviation_bytes) + 1

    def on_no_rows(self, records: int) -> None:
        """Reduce the estimate after records without rows, slowly once rows were seen."""
        if self.record_bytes <= _LEAST_GUESS_BYTES:
            return
        if self._mean_bytes is None:
            guess_bytes = int(self.record_bytes * (1 - _GAIN) ** records)
            self.record_bytes = max(guess_bytes, _LEAST_GUESS_BYTES)
        else:
            factor = (1 - _MISSING_GAIN) ** records
            self._mean_bytes *= factor
            self._deviation_bytes *= factor
            self.record_bytes = int(self._mean_bytes + _DEVIATIONS * self._deviation_bytes) + 1


@dataclass(slots=True, eq=False)
class Quantum:
    """The seconds that one record takes: an exponentially weighted mean with bounded growth."""

    record_s: float = _FIRST_RECORD_S
    records: int = _MIN_PART_RECORDS  # that take about 4 ms, within the bounds

    def on_part(self, records: int, seconds: float) -> None:
        """Learn from a part of at least one record; a small one, mostly overhead, counts less."""
        found_s = max(seconds / records, _PART_S / _MAX_PART_RECORDS)
        gain = _TIME_GAIN * min(1.0, records / self.records)
        if found_s > self.record_s:
            self.record_s += gain * (found_s - self.record_s)
        else:
            # A part is at most twice as large as the previous one.
            self.record_s = max(found_s, self.record_s * (1 - gain))
        self.records = max(_MIN_PART_RECORDS, min(int(_PART_S / self.record_s), _MAX_PART_RECORDS))


@dataclass(frozen=True, slots=True)
class RecordCosts:
    """Learned costs of the records of one channel."""

    time: Quantum = field(default_factory=Quantum)
    size: AnswerSize = field(default_factory=AnswerSize)
