"""Sent lookups of a channel on the client: unanswered keys, and the watermarks between them."""

from collections import deque
from dataclasses import dataclass, replace
from typing import NewType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.answer import Answer
from lookup_core.errors import ProtocolViolation, bad_frame

RunId = NewType("RunId", int)


@dataclass(frozen=True, slots=True)
class SentKeys:
    """Distinct keys of a run, or a part of them."""

    run: RunId
    keys: pa.RecordBatch
    deadline_s: float  # monotonic
    start: int = 0  # position of the first key in the run
    event_time_ms: int | None = None  # the largest of the run's records
    positions: npt.NDArray[np.int32] | None = None  # None: consecutive from `start`
    is_second_try: bool = False  # after a change of the table

    @property
    def count(self) -> int:
        """The number of keys."""
        return int(self.keys.num_rows)

    def part(self, start: int, stop: int) -> "SentKeys":
        """The keys [start, stop) of these."""
        keys = self.keys.slice(start, stop - start)
        if self.positions is None:
            return replace(self, start=self.start + start, keys=keys)
        return replace(self, keys=keys, positions=self.positions[start:stop])

    def only(self, is_kept: npt.NDArray[np.bool_]) -> "SentKeys":
        """The selected ones of these keys."""
        if is_kept.all():
            return self
        kept = np.flatnonzero(is_kept).astype(np.int32)
        keys = self.keys.take(pa.array(kept))
        positions = kept + np.int32(self.start) if self.positions is None else self.positions[kept]
        return replace(self, keys=keys, positions=positions)

    def placed(self, answer: Answer) -> Answer:
        """An answer to these keys, with their positions in the run."""
        if self.positions is None:
            return answer.moved(self.start)
        return answer.placed(self.positions)


@dataclass(frozen=True, slots=True)
class SentWatermark:
    """A watermark, behind all keys that precede it."""

    watermark_ms: int


class _SentLookup:
    """One LOOKUP frame; all of its positions are open at first."""

    def __init__(self, keys: SentKeys, payload_bytes: int) -> None:
        self.keys = keys
        self.open_count = keys.count
        self._payload_bytes = payload_bytes
        self._is_open = np.ones(keys.count, np.bool_)

    @property
    def open_bytes(self) -> int:
        """The share of the open keys in the payload."""
        return self._payload_bytes * self.open_count // max(self.keys.count, 1)

    @property
    def open_keys(self) -> SentKeys:
        """The keys without an answer."""
        return self.keys.only(self._is_open)

    def take(self, positions: npt.NDArray[np.int32], *, is_last: bool) -> None:
        """Close positions; raises ProtocolViolation, before any change, if they are not open."""
        count = len(self._is_open)
        if self.open_count == count and np.array_equal(positions, np.arange(count)):
            self._is_open[:] = False  # the usual case: all keys at once
            self.open_count = 0
            return
        is_inside = bool(((positions >= 0) & (positions < count)).all())
        if not is_inside or not self._is_open[positions].all():
            raise _not_distinct(count)
        self._is_open[positions] = False
        left = int(np.count_nonzero(self._is_open))
        is_distinct = self.open_count - left == len(positions)
        if is_distinct and not (is_last and left):
            self.open_count = left
            return
        self._is_open[positions] = True
        if not is_distinct:
            raise _not_distinct(count)
        raise bad_frame(f"the last answer leaves {left} of {count} keys without one")


def _not_distinct(count: int) -> ProtocolViolation:
    return bad_frame(f"an answer's positions must be distinct and below {count}")


class SentLookups:
    """Unanswered lookups by sequence (1, 2, 3, …), and the watermarks between them."""

    def __init__(self) -> None:
        self.records = 0  # the number of unanswered keys
        self.payload_bytes = 0  # their share in the payloads
        self._sequence = 0
        self._unanswered: dict[int, _SentLookup] = {}  # {sequence: lookup}
        self._log: deque[int | SentWatermark] = deque()  # sequences and watermarks as sent
        self._passed: SentWatermark | None = None  # the last that no unanswered lookup precedes

    def add(self, keys: SentKeys, payload_bytes: int) -> int:
        """Add a lookup; returns its sequence."""
        self._sequence += 1
        self._unanswered[self._sequence] = _SentLookup(keys, payload_bytes)
        self._log.append(self._sequence)
        self.records += keys.count
        self.payload_bytes += payload_bytes
        return self._sequence

    def mark(self, watermark: SentWatermark) -> None:
        """Add a watermark."""
        self._log.append(watermark)
        self._trim()

    def get(self, sequence: int) -> SentKeys | None:
        """The keys of an unanswered lookup; None for any other sequence."""
        found = self._unanswered.get(sequence)
        return None if found is None else found.keys

    def on_answer(self, sequence: int, positions: npt.NDArray[np.int32], *, is_last: bool) -> None:
        """Answer some keys of an unanswered lookup.

        Raises ProtocolViolation, before any change, for a position that is out of range, answered
        already or repeated, and for a last answer that leaves keys unanswered.
        """
        sent = self._unanswered[sequence]
        payload_bytes = sent.open_bytes
        sent.take(positions, is_last=is_last)
        self.records -= len(positions)
        self.payload_bytes -= payload_bytes - sent.open_bytes
        if is_last:
            self.remove(sequence)

    def remove(self, sequence: int) -> None:
        """Remove an unanswered lookup."""
        removed = self._unanswered.pop(sequence)
        self.records -= removed.open_count
        self.payload_bytes -= removed.open_bytes
        self._trim()

    def sequences(self, run: RunId | None = None) -> list[int]:
        """The unanswered lookups, of one run if it is given."""
        return [
            sequence
            for sequence, sent in self._unanswered.items()
            if run is None or sent.keys.run == run
        ]

    def restart(self) -> list[SentKeys | SentWatermark]:
        """Remove everything; returns unanswered keys and watermarks to send again, oldest first."""
        again: list[SentKeys | SentWatermark] = [] if self._passed is None else [self._passed]
        for entry in self._log:
            if isinstance(entry, SentWatermark):
                again.append(entry)
            elif entry in self._unanswered and self._unanswered[entry].open_count:
                again.append(self._unanswered[entry].open_keys)
        self.clear()
        return again

    def clear(self) -> None:
        """Remove everything; sequences start again from 1."""
        self._passed = None
        self._sequence = self.records = self.payload_bytes = 0
        self._unanswered.clear()
        self._log.clear()

    def check_invariants(self) -> None:
        """For tests: totals match, and the log starts with an unanswered lookup."""
        sequences = [entry for entry in self._log if isinstance(entry, int)]
        assert sequences == sorted(sequences)
        assert set(self._unanswered) <= set(sequences)
        assert not self._log or self._log[0] in self._unanswered
        unanswered = self._unanswered.values()
        assert self.records == sum(sent.open_count for sent in unanswered)
        assert self.payload_bytes == sum(sent.open_bytes for sent in unanswered)

    def _trim(self) -> None:
        while self._log and self._log[0] not in self._unanswered:
            entry = self._log.popleft()
            if isinstance(entry, SentWatermark):
                self._passed = entry
