"""Natural batching: keys queued by channel in fair turns, and how many keys a query has.

A private part of `InFlight`. Decides which keys go together, not when a query slot is free.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.dimension.dimension_events import MAX_QUERY_ROWS_BYTES, ChannelId
from lookup_core.dimension.numbered_rows import Numbers
from lookup_core.fair_turns import FairTurns
from lookup_core.record_costs import AnswerSize
from lookup_core.settings import BatchSettings

_MIN_COPIED_BYTES = 4 * 1024  # less memory is not worth a copy
_FIRST_KEYS = 500  # the keys of a query; the number grows while full queries are quick
_QUICK_S = 0.25


@dataclass(frozen=True, slots=True)
class KeyRun:
    """Keys of one lookup that are queued together: their flights and their typed values."""

    flights: Numbers
    source: pa.RecordBatch
    rows: npt.NDArray[np.int32]  # [flights] which rows of `source`

    def select(self, chosen: slice | npt.NDArray[np.bool_]) -> "KeyRun":
        """Some of the keys."""
        return KeyRun(self.flights[chosen], self.source, self.rows[chosen])

    def compacted(self) -> "KeyRun":
        """The same keys, copied if their source has at least twice their memory.

        Few queued keys would otherwise keep a whole frame, whose other credit has returned.
        """
        own_bytes = self.source.nbytes * len(self.rows) // max(self.source.num_rows, 1)
        if self.source.get_total_buffer_size() <= 2 * own_bytes + _MIN_COPIED_BYTES:
            return self
        copied = self.source.take(pa.array(self.rows))
        return KeyRun(self.flights.copy(), copied, np.arange(len(self.rows), dtype=np.int32))


class KeyQueue:
    """Keys by channel, oldest first, taken in fair turns."""

    def __init__(self) -> None:
        self._runs: dict[ChannelId, deque[KeyRun]] = {}
        self._turns: FairTurns[ChannelId] = FairTurns()
        self._size = 0
        self.oldest_at = 0.0  # since when keys are queued, those behind a full batch included

    def __len__(self) -> int:
        return self._size

    def put(self, channel: ChannelId, run: KeyRun, now: float) -> None:
        """Queue keys for a channel."""
        if not self._size:
            self.oldest_at = now
        self._turns.enter(channel)
        self._runs.setdefault(channel, deque()).append(run.compacted())
        self._size += len(run.flights)

    def take_batch(self, max_keys: int, wanted: Callable[[KeyRun], KeyRun]) -> list[KeyRun]:
        """Take keys in turn; those that are not `wanted` are dropped, and do not count."""
        batch: list[KeyRun] = []
        room = max_keys
        while room and len(self._turns):
            channel = self._turns.current
            allowance = self._turns.allowance(max(1, max_keys // len(self._turns)))
            taken = self._take_runs(self._runs[channel], min(room, allowance), wanted)
            batch += taken
            count = sum(len(run.flights) for run in taken)
            room -= count
            self._turns.spend(count)
            self._drop_empty(channel)
        return batch

    def drop_unwanted(self, wanted: Callable[[KeyRun], KeyRun]) -> None:
        """Drop the keys that are not `wanted`, before their turn."""
        for channel, runs in list(self._runs.items()):
            self._runs[channel] = deque(run for run in map(wanted, runs) if run.flights.size)
            self._drop_empty(channel)
        self._size = sum(map(len, self.flights()))

    def flights(self) -> list[Numbers]:
        """The flights of the queued keys."""
        return [run.flights for runs in self._runs.values() for run in runs]

    def check_invariants(self) -> None:
        """For tests: counts agree, and each channel that has a turn has keys."""
        assert self._size == sum(map(len, self.flights()))
        assert len(self._turns) == len(self._runs)
        for channel, runs in self._runs.items():
            assert channel in self._turns
            assert runs
            assert all(len(run.flights) == len(run.rows) > 0 for run in runs)

    def _take_runs(
        self, runs: deque[KeyRun], count: int, wanted: Callable[[KeyRun], KeyRun]
    ) -> list[KeyRun]:
        taken = []
        while count and runs:
            run = runs.popleft()
            if len(run.flights) > count:
                runs.appendleft(run.select(slice(count, None)).compacted())
                run = run.select(slice(count))
            self._size -= len(run.flights)
            run = wanted(run)
            if run.flights.size:
                taken.append(run)
            count -= len(run.flights)
        return taken

    def _drop_empty(self, channel: ChannelId) -> None:
        if not self._runs[channel]:
            del self._runs[channel]
            self._turns.leave(channel)


class QuerySize:
    """How many keys a query may have: bounded in bytes of rows, and by the time of full queries.

    The fixed cost of a query is divided among its keys. Therefore queries grow while many keys
    wait, but only as long as they are quick: a slow one would delay its first key, or time out.
    """

    def __init__(self, settings: BatchSettings, *, timeout_s: float) -> None:
        """A quick query takes an eighth of `timeout_s` at most, and 0.25 s."""
        self._max_keys = settings.max_keys
        self._quick_s = min(_QUICK_S, timeout_s / 8)
        self._rows = AnswerSize(1)  # rows count as small until the first ones come
        self._min_keys = self._quick_keys = min(_FIRST_KEYS, settings.max_keys)

    @property
    def max_keys(self) -> int:
        """The number of keys that the next query may have; fewer if rows are large, at least 1."""
        return max(1, min(self._quick_keys, MAX_QUERY_ROWS_BYTES // self._rows.record_bytes))

    def on_rows(self, count: int, rows_bytes: int, *, missing: int, seconds: float) -> None:
        """Learn from a query's result: rows, their bytes, keys without a row, and its time."""
        if count:
            self._rows.on_rows(count, rows_bytes)
        if missing:
            self._rows.on_no_rows(missing)
        keys = count + missing
        if seconds > self._quick_s:
            self._quick_keys = max(self._min_keys, min(self._quick_keys, keys) // 2)
        elif keys >= self._quick_keys:
            self._quick_keys = min(2 * self._quick_keys, self._max_keys)

    def on_timeout(self) -> None:
        """A query took longer than it may: the next ones are small again."""
        self._quick_keys = self._min_keys
