"""Natural batching: the keys of the next query, in fair turns over channels, bounded in bytes.

Decides which keys go together, not when a query slot is free.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import NewType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.dimension.flight_rows import Numbers
from lookup_core.dimension.flight_table import FlightTable
from lookup_core.protocol.answer_budget import AnswerSize
from lookup_core.settings import BatchSettings

QUERY_BYTES = 8 * 1024 * 1024  # of rows: a query's rows take about four times as much at its end
_LEAST_BYTES = 4 * 1024  # less memory is not worth a copy
_FIRST_KEYS = 500  # of a query; the number grows while full queries are quick
_QUICK_S = 0.25

ChannelId = NewType("ChannelId", int)


@dataclass(frozen=True, slots=True)
class KeyRun:
    """Keys of one lookup that are queued together: their flights and their typed values."""

    flights: Numbers
    source: pa.RecordBatch
    rows: npt.NDArray[np.int32]  # [flights] which rows of `source`

    def split(self, count: int) -> tuple["KeyRun", "KeyRun"]:
        """The first `count` keys, and the rest."""
        first = KeyRun(self.flights[:count], self.source, self.rows[:count])
        return first, KeyRun(self.flights[count:], self.source, self.rows[count:])

    def compacted(self) -> "KeyRun":
        """The same keys, copied if their source has at least twice their memory.

        Few queued keys would otherwise keep a whole frame, whose other credit has returned.
        """
        own_bytes = self.source.nbytes * len(self.rows) // max(self.source.num_rows, 1)
        if self.source.get_total_buffer_size() <= 2 * own_bytes + _LEAST_BYTES:
            return self
        copied = self.source.take(pa.array(self.rows))
        return KeyRun(self.flights.copy(), copied, np.arange(len(self.rows), dtype=np.int32))


@dataclass(slots=True)
class _Channel:
    runs: deque[KeyRun] = field(default_factory=deque)
    deficit: int = 0


class Batcher:
    """Queued keys by channel, oldest first; `now` is monotonic seconds.

    Drops keys that no lookup waits for, and ends their flights.
    """

    def __init__(
        self, settings: BatchSettings, flights: FlightTable, *, timeout_s: float = 2.0
    ) -> None:
        """A quick query takes an eighth of `timeout_s` at most, and 0.25 s."""
        self._settings = settings
        self._quick_s = min(_QUICK_S, timeout_s / 8)
        self._flights = flights
        self._size = AnswerSize(1)  # rows count as small until the first ones come
        self._least_keys = self._quick_keys = min(_FIRST_KEYS, settings.max_keys)
        self._channels: dict[ChannelId, _Channel] = {}  # in the order of their turns
        self._queued = 0
        self._oldest_at = 0.0  # since when keys are queued, those behind a full batch included

    def __len__(self) -> int:
        return self._queued

    @property
    def max_keys(self) -> int:
        """The number of keys that the next query may have; fewer if rows are large, at least 1."""
        return max(1, min(self._quick_keys, QUERY_BYTES // self._size.record_bytes))

    def add(self, channel: ChannelId, run: KeyRun, now: float) -> None:
        """Queue keys for a channel."""
        if not self._queued:
            self._oldest_at = now
        self._channels.setdefault(channel, _Channel()).runs.append(run.compacted())
        self._queued += len(run.flights)

    def next_deadline(self) -> float | None:
        """The due time of the next batch, given a free slot; None if no key is queued."""
        if not self._queued:
            return None
        is_full = self._queued >= self.max_keys
        return self._oldest_at if is_full else self._oldest_at + self._settings.linger_s

    def next_batch(self, now: float) -> list[KeyRun] | None:
        """The keys of the next query, at most `max_keys`; None if no batch is due."""
        due = self.next_deadline()
        if due is None or now < due:
            return None
        return self._take_turns() or None

    def on_rows(self, count: int, rows_bytes: int, *, missing: int, seconds: float) -> None:
        """Learn from a query's result: rows, their bytes, keys without a row, and its time.

        The fixed cost of a query is divided among its keys. Therefore queries grow while many keys
        wait, but only as long as they are quick: a slow one would delay its first key, or time out.
        """
        if count:
            self._size.on_rows(count, rows_bytes)
        if missing:
            self._size.on_no_rows(missing)
        keys = count + missing
        if seconds > self._quick_s:
            self._quick_keys = max(self._least_keys, min(self._quick_keys, keys) // 2)
        elif keys >= self._quick_keys:
            self._quick_keys = min(2 * self._quick_keys, self._settings.max_keys)

    def on_timeout(self) -> None:
        """A query took longer than it may: the next ones are small again."""
        self._quick_keys = self._least_keys

    def drop_unwanted(self) -> None:
        """Drop the keys that no lookup waits for, before their turn."""
        for name, channel in list(self._channels.items()):
            wanted = [self._wanted(run) for run in channel.runs]
            channel.runs = deque(run for run in wanted if run.flights.size)
            if not channel.runs:
                del self._channels[name]
        self._queued = sum(map(len, self.carried()))

    def carried(self) -> list[Numbers]:
        """The flights of the queued keys."""
        return [run.flights for channel in self._channels.values() for run in channel.runs]

    def check_invariants(self) -> None:
        """For tests: counts agree, and each channel has keys."""
        assert self._queued == sum(map(len, self.carried()))
        for channel in self._channels.values():
            assert channel.runs
            assert all(
                run.flights.size and len(run.flights) == len(run.rows) for run in channel.runs
            )
            assert 0 <= channel.deficit <= self._settings.max_keys

    def _take_turns(self) -> list[KeyRun]:
        batch: list[KeyRun] = []
        room = self.max_keys
        while room and self._channels:
            name, channel = next(iter(self._channels.items()))
            if not channel.deficit:
                channel.deficit = max(1, self.max_keys // len(self._channels))
            taken = self._take(channel, min(room, channel.deficit))
            batch.extend(taken)
            count = sum(len(run.flights) for run in taken)
            room -= count
            channel.deficit -= count
            if not channel.runs:
                del self._channels[name]
            elif not channel.deficit:
                self._channels[name] = self._channels.pop(name)  # to the back
        return batch

    def _take(self, channel: _Channel, count: int) -> list[KeyRun]:
        taken = []
        while count and channel.runs:
            first, rest = channel.runs.popleft().split(count)
            if rest.flights.size:
                channel.runs.appendleft(rest.compacted())
            self._queued -= len(first.flights)
            wanted = self._wanted(first)
            if wanted.flights.size:
                taken.append(wanted)
            count -= len(wanted.flights)
        return taken

    def _wanted(self, run: KeyRun) -> KeyRun:
        is_wanted = self._flights.is_wanted(run.flights)
        if is_wanted.all():
            return run
        self._flights.end(run.flights[~is_wanted])
        return KeyRun(run.flights[is_wanted], run.source, run.rows[is_wanted])
