"""What a channel has sent and what of it is unanswered, in order, with the watermarks between.

Kept for one purpose: after a loss, the same is sent again in the same order, so that no lookup
comes behind a watermark that it stood before. Not for what was never sent.
"""

from collections import deque
from dataclasses import dataclass, replace
from typing import NewType

import pyarrow as pa

QuestionId = NewType("QuestionId", int)


@dataclass(frozen=True, slots=True)
class AskedKeys:
    """Keys of a question, or a part of them that stands at `start`."""

    question: QuestionId
    keys: pa.RecordBatch
    deadline_s: float
    start: int = 0

    @property
    def count(self) -> int:
        """How many keys these are."""
        return int(self.keys.num_rows)

    def split(self, count: int) -> "tuple[AskedKeys, AskedKeys]":
        """The first `count` keys, and the others."""
        rest = replace(self, start=self.start + count, keys=self.keys.slice(count))
        return replace(self, keys=self.keys.slice(0, count)), rest


@dataclass(frozen=True, slots=True)
class SentWatermark:
    """A watermark; all that was asked before it stands before it."""

    watermark_ms: int


class SentLookups:
    """Lookups by sequence (1, 2, 3, …) until they are answered, and the watermarks among them."""

    def __init__(self) -> None:
        self._sequence = 0
        self._unanswered: dict[int, AskedKeys] = {}  # {sequence: keys}
        self._log: deque[int | SentWatermark] = deque()  # sequences and watermarks as sent
        self._passed: SentWatermark | None = None  # the last with nothing unanswered before it

    def add(self, asked: AskedKeys) -> int:
        """Note a lookup; the sequence that it travels with."""
        self._sequence += 1
        self._unanswered[self._sequence] = asked
        self._log.append(self._sequence)
        return self._sequence

    def mark(self, watermark: SentWatermark) -> None:
        """Note a watermark."""
        self._log.append(watermark)
        self._trim()

    def get(self, sequence: int) -> AskedKeys | None:
        """The keys of a lookup without its last answer; None for any other sequence."""
        return self._unanswered.get(sequence)

    def remove(self, sequence: int) -> None:
        """The lookup needs no answer any more."""
        del self._unanswered[sequence]
        self._trim()

    def sequences_of(self, question: QuestionId) -> list[int]:
        """The unanswered lookups of a question."""
        return [
            sequence for sequence, asked in self._unanswered.items() if asked.question == question
        ]

    def unanswered_sequences(self) -> list[int]:
        """All lookups without their last answer."""
        return list(self._unanswered)

    def restart(self) -> list[AskedKeys | SentWatermark]:
        """Forget all; what has to be sent again, oldest first."""
        again = self._again()
        self._sequence = 0
        self._unanswered.clear()
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
        assert set(self._unanswered) <= set(sequences)
        assert not self._log or self._log[0] in self._unanswered

    def _again(self) -> list[AskedKeys | SentWatermark]:
        again: list[AskedKeys | SentWatermark] = []
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
