"""Backlog and credit of a channel on the client: keys and watermarks that wait, in order."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.errors import ErrorCode
from lookup_core.protocol.arrow_payload import encode_batch
from lookup_core.protocol.sent_lookups import RunId, SentKeys, SentWatermark
from lookup_core.row_bytes import most_row_bytes, row_bytes

_MAX_LOOKUP_BYTES = 1024 * 1024  # other channels share the connection
_MIN_SHARE = 2  # credit below this part of the channel's credit waits for more
# Upper bounds of an IPC message.
_MESSAGE_BYTES = 256  # without columns
_COLUMN_BYTES = 64  # metadata of a column: one node and three buffers
# Arrow truncates a buffer only if that saves 64 bytes, so the first of many small values, sent
# alone, may take that much more: for values, for offsets (16 bytes) and for validity.
_COLUMN_ROUNDING_BYTES = 208


@dataclass(frozen=True, slots=True)
class ChannelAnswer:
    """Answers to a run, by the position of each key in the run."""

    run: RunId
    answer: Answer


def too_large_keys(keys: pa.RecordBatch, max_bytes: int) -> npt.NDArray[np.int32]:
    """Positions of the keys whose payload alone would exceed `max_bytes`."""
    rounding_bytes = _COLUMN_ROUNDING_BYTES * keys.num_columns
    metadata_bytes = _MESSAGE_BYTES + _COLUMN_BYTES * keys.num_columns
    left_bytes = max_bytes - metadata_bytes - rounding_bytes
    # The usual cases: all keys together, or an upper bound of the largest one, fit.
    if keys.nbytes <= left_bytes or most_row_bytes(keys) <= left_bytes:
        return np.zeros(0, np.int32)
    # Not a slice: Arrow writes all offsets of a text column even for an empty slice.
    empty = keys.take(pa.array([], pa.int32()))
    around_bytes = len(encode_batch(empty)) + _COLUMN_BYTES + rounding_bytes
    return np.flatnonzero(row_bytes(keys) + around_bytes > max_bytes).astype(np.int32)


Entry = SentKeys | SentWatermark


class Backlog:
    """Keys and watermarks, oldest first; `records` is the number of keys."""

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()
        self.records = 0

    def __bool__(self) -> bool:
        """Whether there is an entry."""
        return bool(self._entries)

    @property
    def head(self) -> Entry:
        """The oldest entry, which must exist."""
        return self._entries[0]

    def add(self, entry: Entry) -> None:
        """Add an entry behind all others."""
        self._entries.append(entry)
        self.records += _records(entry)

    def add_fitting(self, keys: SentKeys, max_bytes: int) -> list[ChannelAnswer]:
        """Add keys, except those whose payload exceeds `max_bytes`; returns answers to these."""
        refused, fitting = _without_too_large(keys, max_bytes)
        for entry in fitting:
            self.add(entry)
        return refused

    def put_back(self, entries: Iterable[Entry]) -> None:
        """Add entries, in this order, before all others."""
        self._replace([*entries, *self._entries])

    def pop(self) -> None:
        """Remove the oldest entry."""
        self.records -= _records(self._entries.popleft())

    def pop_keys(self, count: int) -> None:
        """Remove the first `count` keys of the oldest entry."""
        head = self._entries.popleft()
        assert isinstance(head, SentKeys)
        self.records -= count
        if count < head.count:
            self._entries.appendleft(head.part(count, head.count))

    def drop(self, run: RunId) -> None:
        """Remove the keys of a run."""
        self._replace(
            entry for entry in self._entries if isinstance(entry, SentWatermark) or entry.run != run
        )

    def clear(self) -> None:
        """Remove all entries."""
        self._replace(())

    def refuse_too_large(self, max_bytes: int) -> list[ChannelAnswer]:
        """Remove keys whose payload exceeds `max_bytes`; returns answers to them."""
        refused: list[ChannelAnswer] = []
        fitting: list[Entry] = []
        for entry in self._entries:
            answers, rest = _without_too_large(entry, max_bytes)
            refused += answers
            fitting += rest
        if refused:
            self._replace(fitting)
        return refused

    def check_invariants(self) -> None:
        """For tests: the sum matches, and no entry is empty."""
        assert self.records == sum(map(_records, self._entries))
        assert all(_records(entry) for entry in self._entries if isinstance(entry, SentKeys))

    def _replace(self, entries: Iterable[Entry]) -> None:
        self._entries = deque(entries)
        self.records = sum(map(_records, self._entries))


def _records(entry: Entry) -> int:
    return entry.count if isinstance(entry, SentKeys) else 0


def _without_too_large(entry: Entry, max_bytes: int) -> tuple[list[ChannelAnswer], list[Entry]]:
    if isinstance(entry, SentWatermark):
        return [], [entry]
    too_large = too_large_keys(entry.keys, max_bytes)
    if not len(too_large):
        return [], [entry]
    answer = rowless_answer(too_large, Outcome.ERROR, error=ErrorCode.KEY_TOO_LARGE)
    is_fitting = np.ones(entry.count, np.bool_)
    is_fitting[too_large] = False
    fitting: list[Entry] = [entry.only(is_fitting)] if is_fitting.any() else []
    return [ChannelAnswer(entry.run, entry.placed(answer))], fitting


class ClientCredit:
    """Credit of one channel, in records and bytes; never negative.

    `in_flight` is the cost of unanswered keys. Credit below half of the channel's total (credit
    and in flight) is not worth a frame while a lookup in flight may return more.
    """

    def __init__(self) -> None:
        self.restart(0, 0)

    def restart(self, records: int, size: int) -> None:
        """Replace the credit by the exclusive credit of a new connection."""
        self.records = records
        self.bytes = self.exclusive_bytes = size  # the latter is the limit of a single key

    def add(self, records: int, size: int) -> None:
        """Add received credit."""
        self.records += records
        self.bytes += size

    def spend(self, records: int, size: int) -> None:
        """Pay for a lookup."""
        assert records <= self.records
        assert size <= self.bytes
        self.records -= records
        self.bytes -= size

    @property
    def lookup_bytes(self) -> int:
        """The maximal payload of one lookup now."""
        return min(self.bytes, _MAX_LOOKUP_BYTES)

    def records_to_send(self, waiting: int, *, in_flight: int) -> int:
        """How many of the waiting records to send now; 0 to wait for more credit."""
        count = min(waiting, self.records)
        return 0 if count < waiting and _is_small(count, in_flight) else count

    def records_within(self, count: int, size: int, *, in_flight: int) -> int:
        """Fewer than `count` records, estimated to fit the bytes; 0 to wait for more credit.

        The payload of `count` records has `size` bytes; `in_flight` is in bytes.
        """
        if count == 1 or _is_small(self.bytes, in_flight):
            return 0
        return max(min(count - 1, count * self.lookup_bytes // size), 1)


def _is_small(available: int, in_flight: int) -> bool:
    return in_flight > 0 and available * _MIN_SHARE < available + in_flight
