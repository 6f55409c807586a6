"""Natural batching: keys of the next query, in fair turns over channels, bounded in bytes."""

from collections import deque
from dataclasses import dataclass, field
from typing import NewType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.dimension.flight_table import FlightTable
from lookup_core.dimension.numbered_rows import Numbers
from lookup_core.protocol.answer_budget import AnswerSize
from lookup_core.settings import BatchSettings

QUERY_BYTES = 8 * 1024 * 1024  # of rows: while they land they are in memory about four times


class QuerySize:
    """The bound of one dimension's queries: `max_keys`, or fewer once rows are known as large."""

    def __init__(self, max_keys: int) -> None:
        self._max_keys = max_keys
        # Without a row nothing is large: until one came, those who ask are cautious.
        self._size = AnswerSize(1)

    @property
    def keys(self) -> int:
        """How many keys the next query may have, at least one."""
        return max(1, min(self._max_keys, QUERY_BYTES // self._size.record_bytes))

    def on_rows(self, count: int, rows_bytes: int, *, absent: int) -> None:
        """A query brought so many rows, if any, of so many bytes together; other keys had none."""
        if count:
            self._size.on_rows(count, rows_bytes)
        if absent:
            self._size.on_no_rows(absent)


ChannelId = NewType("ChannelId", int)


@dataclass(frozen=True, slots=True)
class KeyRun:
    """Keys of one lookup that wait together: flights and where their typed keys stand."""

    flights: Numbers
    source: pa.RecordBatch
    rows: npt.NDArray[np.int32]  # [flights] which rows of `source`

    def split(self, count: int) -> tuple["KeyRun", "KeyRun"]:
        """The first `count` keys, and the rest."""
        first = KeyRun(self.flights[:count], self.source, self.rows[:count])
        return first, KeyRun(self.flights[count:], self.source, self.rows[count:])


@dataclass(slots=True)
class _Channel:
    runs: deque[KeyRun] = field(default_factory=deque)
    deficit: int = 0


class Batcher:
    """Keys in queue by channel, oldest first; `now` is monotonic seconds.

    Ends the flights that it drops, because nobody waits for them.
    """

    def __init__(self, settings: BatchSettings, flights: FlightTable) -> None:
        self._settings = settings
        self._flights = flights
        self._size = QuerySize(settings.max_keys)
        self._channels: dict[ChannelId, _Channel] = {}  # whose turn is next comes first
        self._queued = 0
        # Since when keys are queued; those that a full batch left behind do not wait anew.
        self._oldest_at = 0.0

    def __len__(self) -> int:
        return self._queued

    def add(self, channel: ChannelId, run: KeyRun, now: float) -> None:
        """Queue keys for a channel."""
        if not self._queued:
            self._oldest_at = now
        self._channels.setdefault(channel, _Channel()).runs.append(run)
        self._queued += len(run.flights)

    def next_deadline(self) -> float | None:
        """When the next batch leaves, given a free slot; None when nothing is queued."""
        if not self._queued:
            return None
        is_full = self._queued >= self._size.keys
        return self._oldest_at if is_full else self._oldest_at + self._settings.linger_s

    def next_batch(self, now: float) -> list[KeyRun] | None:
        """The keys of the next query, at most `max_keys`; None if it is too early or none is left.

        Fewer, if rows are so large that they would be too many bytes at once. Keys that nobody
        waits for any more are dropped on the way.
        """
        due = self.next_deadline()
        if due is None or now < due:
            return None
        return self._take_turns() or None

    def on_rows(self, count: int, rows_bytes: int, *, absent: int) -> None:
        """A query brought so many rows, if any, of so many bytes together; other keys had none."""
        self._size.on_rows(count, rows_bytes, absent=absent)

    def drop_deserted(self) -> None:
        """Forget the keys that nobody waits for any more, before their turn."""
        for name, channel in list(self._channels.items()):
            wanted = [self._without_deserted(run) for run in channel.runs]
            channel.runs = deque(run for run in wanted if run.flights.size)
            if not channel.runs:
                del self._channels[name]
        self._queued = sum(
            len(run.flights) for channel in self._channels.values() for run in channel.runs
        )

    def carried(self) -> list[Numbers]:
        """For tests: the flights of what is queued."""
        return [run.flights for channel in self._channels.values() for run in channel.runs]

    def check_invariants(self) -> None:
        """For tests: what is counted is what is queued, and nobody is in turn without keys."""
        runs = [run for channel in self._channels.values() for run in channel.runs]
        assert self._queued == sum(len(run.flights) for run in runs)
        assert all(run.flights.size and len(run.flights) == len(run.rows) for run in runs)
        for channel in self._channels.values():
            assert channel.runs
            assert 0 <= channel.deficit <= self._settings.max_keys

    def _take_turns(self) -> list[KeyRun]:
        batch: list[KeyRun] = []
        room = self._size.keys
        while room and self._channels:
            name, channel = next(iter(self._channels.items()))
            if not channel.deficit:
                channel.deficit = max(1, self._settings.max_keys // len(self._channels))
            taken = self._take(channel, min(room, channel.deficit))
            batch.extend(taken)
            count = sum(len(run.flights) for run in taken)
            room -= count
            channel.deficit -= count
            self._end_turn(name, channel)
        return batch

    def _end_turn(self, name: ChannelId, channel: _Channel) -> None:
        if not channel.runs:
            del self._channels[name]
        elif not channel.deficit:
            self._channels[name] = self._channels.pop(name)  # to the back

    def _take(self, channel: _Channel, count: int) -> list[KeyRun]:
        taken = []
        while count and channel.runs:
            first, rest = channel.runs.popleft().split(count)
            if rest.flights.size:
                channel.runs.appendleft(rest)
            self._queued -= len(first.flights)
            wanted = self._without_deserted(first)
            if wanted.flights.size:
                taken.append(wanted)
            count -= len(wanted.flights)
        return taken

    def _without_deserted(self, run: KeyRun) -> KeyRun:
        is_wanted = self._flights.is_wanted(run.flights)
        if is_wanted.all():
            return run
        self._flights.end(run.flights[~is_wanted])
        return KeyRun(run.flights[is_wanted], run.source, run.rows[is_wanted])
