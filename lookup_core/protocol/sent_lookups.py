"""Lookups that were sent, the positions without an answer, and the watermarks between them."""

from collections import deque
from dataclasses import dataclass, replace
from typing import NewType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.errors import ErrorCode, ProtocolViolation


class OpenPositions:
    """All of them at first; none behind the last answer."""

    def __init__(self, count: int) -> None:
        self._is_open = np.ones(count, np.bool_)
        self._left = count

    def take(self, positions: npt.NDArray[np.int32], *, is_last: bool) -> None:
        """These are answered now.

        Raises ProtocolViolation for one that is not there, that was answered already or is named
        twice, and for a last answer that leaves some open: their task would wait for nothing.
        """
        count = len(self._is_open)
        is_inside = bool(((positions >= 0) & (positions < count)).all())
        if not is_inside or not self._is_open[positions].all():
            raise _not_distinct(count)
        self._is_open[positions] = False
        left = int(np.count_nonzero(self._is_open))
        is_distinct = self._left - left == len(positions)
        if is_distinct and not (is_last and left):
            self._left = left
            return
        self._is_open[positions] = True  # as all of them were
        if not is_distinct:
            raise _not_distinct(count)
        raise _bad(f"the last answer leaves {left} of {count} keys without one")


def _not_distinct(count: int) -> ProtocolViolation:
    return _bad(f"an answer's positions must be distinct and below {count}")


def _bad(detail: str) -> ProtocolViolation:
    return ProtocolViolation(ErrorCode.BAD_FRAME, detail)


QuestionId = NewType("QuestionId", int)


@dataclass(frozen=True, slots=True)
class SentKeys:
    """Keys of a question, or a part of them that stands at `start`."""

    question: QuestionId
    keys: pa.RecordBatch
    deadline_s: float
    start: int = 0
    event_time_ms: int | None = None  # the largest of the question's records

    @property
    def count(self) -> int:
        """How many keys these are."""
        return int(self.keys.num_rows)

    def part(self, start: int, stop: int) -> "SentKeys":
        """The keys from `start` up to `stop` of these."""
        keys = self.keys.slice(start, stop - start)
        return replace(self, start=self.start + start, keys=keys)

    def split(self, count: int) -> "tuple[SentKeys, SentKeys]":
        """The first `count` keys, and the others."""
        return self.part(0, count), self.part(count, self.count)


@dataclass(frozen=True, slots=True)
class SentWatermark:
    """A watermark; all that was asked before it stands before it."""

    watermark_ms: int


class SentLookups:
    """Lookups by sequence (1, 2, 3, …) until they are answered, and the watermarks among them."""

    def __init__(self) -> None:
        self._sequence = 0
        self._unanswered: dict[int, SentKeys] = {}  # {sequence: keys}
        self._open: dict[int, OpenPositions] = {}  # {sequence: which of its keys}
        self._log: deque[int | SentWatermark] = deque()  # sequences and watermarks as sent
        self._passed: SentWatermark | None = None  # the last with nothing unanswered before it

    def add(self, asked: SentKeys) -> int:
        """Note a lookup; the sequence that it travels with."""
        self._sequence += 1
        self._unanswered[self._sequence] = asked
        self._open[self._sequence] = OpenPositions(asked.count)
        self._log.append(self._sequence)
        return self._sequence

    def mark(self, watermark: SentWatermark) -> None:
        """Note a watermark."""
        self._log.append(watermark)
        self._trim()

    def get(self, sequence: int) -> SentKeys | None:
        """The keys of a lookup without its last answer; None for any other sequence."""
        return self._unanswered.get(sequence)

    def on_answer(self, sequence: int, positions: npt.NDArray[np.int32], *, is_last: bool) -> None:
        """Some of a lookup's keys are answered now; raises ProtocolViolation if they cannot be."""
        self._open[sequence].take(positions, is_last=is_last)
        if is_last:
            self.remove(sequence)

    def remove(self, sequence: int) -> None:
        """The lookup needs no answer any more."""
        del self._unanswered[sequence], self._open[sequence]
        self._trim()

    def sequences_of(self, question: QuestionId) -> list[int]:
        """The unanswered lookups of a question."""
        return [
            sequence for sequence, asked in self._unanswered.items() if asked.question == question
        ]

    def unanswered_sequences(self) -> list[int]:
        """All lookups without their last answer."""
        return list(self._unanswered)

    def restart(self) -> list[SentKeys | SentWatermark]:
        """Forget all; what has to be sent again, oldest first."""
        again = self._again()
        self._passed = None  # from here on it waits with the others to be sent again
        self._sequence = 0
        self._unanswered.clear()
        self._open.clear()
        self._log.clear()
        return again

    @property
    def record_count(self) -> int:
        """How many records are unanswered."""
        return sum(asked.count for asked in self._unanswered.values())

    def check_invariants(self) -> None:
        """For tests: what is unanswered stands in the log, which begins with an unanswered one."""
        sequences = [entry for entry in self._log if isinstance(entry, int)]
        assert sequences == sorted(sequences)
        assert set(self._unanswered) == set(self._open) <= set(sequences)
        assert not self._log or self._log[0] in self._unanswered

    def _again(self) -> list[SentKeys | SentWatermark]:
        again: list[SentKeys | SentWatermark] = []
        if self._passed is not None:
            again.append(self._passed)
        for entry in self._log:
            if isinstance(entry, SentWatermark):
                again.append(entry)
            elif entry in self._unanswered:
                again.append(self._unanswered[entry])
        return again

    def _trim(self) -> None:
        while self._log and self._log[0] not in self._unanswered:
            entry = self._log.popleft()
            if isinstance(entry, SentWatermark):
                self._passed = entry
