"""Backlog of a channel on the client: keys and watermarks that wait for credit, in order."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.errors import ErrorCode
from lookup_core.protocol.arrow_payload import encode_batch
from lookup_core.protocol.sent_lookups import QuestionId, SentKeys, SentWatermark
from lookup_core.row_bytes import most_row_bytes, row_bytes


@dataclass(frozen=True, slots=True)
class ChannelAnswer:
    """Answers to a question; positions are those of the keys as they were asked."""

    question: QuestionId
    answer: Answer


_MESSAGE_BYTES = 256  # of a message without columns
_COLUMN_BYTES = 64  # of its metadata, for each column: one node and three buffers
# Arrow cuts a buffer only where it saves 64 bytes: the first of many small numbers, sent alone, may
# take so many more. Values, offsets (16 bytes of their own) and validity, each with such a rest.
_ROUNDING_BYTES = 208  # for each column


def too_large_keys(keys: pa.RecordBatch, most_bytes: int) -> npt.NDArray[np.int32]:
    """Positions of the keys that take more than so many bytes on the wire, each on its own."""
    rounding_bytes = _ROUNDING_BYTES * keys.num_columns
    metadata_bytes = _MESSAGE_BYTES + _COLUMN_BYTES * keys.num_columns
    left_bytes = most_bytes - metadata_bytes - rounding_bytes
    # Not even all of them together, or at least not the largest: the usual cases.
    if keys.nbytes <= left_bytes or most_row_bytes(keys) <= left_bytes:
        return np.zeros(0, np.int32)
    # Not a slice: Arrow writes all offsets of a text column for one that is empty.
    nothing = keys.take(pa.array([], pa.int32()))
    around_bytes = len(encode_batch(nothing)) + _COLUMN_BYTES + rounding_bytes
    return np.flatnonzero(row_bytes(keys) + around_bytes > most_bytes).astype(np.int32)


Entry = SentKeys | SentWatermark


class Backlog:
    """Entries, oldest first."""

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()
        self.records = 0

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._entries)

    @property
    def head(self) -> Entry:
        """The oldest; there is one."""
        return self._entries[0]

    def add(self, entry: Entry) -> None:
        """Behind all others."""
        self._entries.append(entry)
        self.records += _records(entry)

    def add_fitting(self, asked: SentKeys, most_bytes: int) -> list[ChannelAnswer]:
        """The same without keys that take more than so many bytes on the wire; answers to those."""
        refused, rest = _without_too_large(asked, most_bytes)
        for entry in rest:
            self.add(entry)
        return refused

    def put_back(self, entries: Iterable[Entry]) -> None:
        """Before all others, in this order: they were sent before and have to be sent again."""
        for entry in reversed(list(entries)):
            self._entries.appendleft(entry)
            self.records += _records(entry)

    def pop(self) -> None:
        """The oldest is sent."""
        self.records -= _records(self._entries.popleft())

    def take(self, asked: SentKeys, count: int) -> SentKeys:
        """The first `count` keys of the oldest entry, which is `asked`, are sent."""
        self.pop()
        first, rest = asked.split(count)
        if rest.count:
            self.put_back([rest])
        return first

    def drop(self, question: QuestionId) -> None:
        """Nobody waits for this question any more."""
        self._replace(entry for entry in self._entries if not _belongs(entry, question))

    def clear(self) -> None:
        """Drop all."""
        self._replace(())

    def refuse_too_large(self, most_bytes: int) -> list[ChannelAnswer]:
        """Take keys out that take more than so many bytes on the wire; the answers to those."""
        refused: list[ChannelAnswer] = []
        kept: list[Entry] = []
        for entry in self._entries:
            answer, rest = _without_too_large(entry, most_bytes)
            refused += answer
            kept += rest
        if refused:
            self._replace(kept)
        return refused

    def check_invariants(self) -> None:
        """For tests: the sum is that of the entries, and none is empty."""
        assert self.records == sum(map(_records, self._entries))
        assert all(_records(entry) for entry in self._entries if isinstance(entry, SentKeys))

    def _replace(self, entries: Iterable[Entry]) -> None:
        self._entries = deque(entries)
        self.records = sum(map(_records, self._entries))


def _records(entry: Entry) -> int:
    return entry.count if isinstance(entry, SentKeys) else 0


def _belongs(entry: Entry, question: QuestionId) -> bool:
    return isinstance(entry, SentKeys) and entry.question == question


def _without_too_large(entry: Entry, most_bytes: int) -> tuple[list[ChannelAnswer], list[Entry]]:
    if isinstance(entry, SentWatermark):
        return [], [entry]
    too_large = too_large_keys(entry.keys, most_bytes)
    if not len(too_large):
        return [], [entry]
    answer = rowless_answer(too_large, Outcome.ERROR, error=ErrorCode.KEY_TOO_LARGE)
    # What lies between two of them stays in one piece.
    starts, stops = [0, *(too_large + 1).tolist()], [*too_large.tolist(), entry.count]
    runs = [entry.part(*run) for run in zip(starts, stops, strict=True) if run[0] < run[1]]
    return [ChannelAnswer(entry.question, answer.moved(entry.start))], list(runs)
