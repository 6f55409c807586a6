"""Lookup load without Spark: channels that keep keys in flight, from several processes."""

import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import get_context
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.answer import Outcome
from lookup_core.protocol.client_channel import ChannelRequest
from lookup_core.protocol.sent_lookups import QuestionId, SentKeys
from spark_client.transport.channel_session import ChannelSession
from spark_client.transport.connections import Address, connections

TIMEOUT_S = 60.0
KEY = pa.schema([pa.field("id", pa.int64())])


@dataclass(frozen=True, slots=True)
class Asking:
    """What one client asks for: so many keys at a time, at random out of the dimension's rows."""

    endpoint: str
    dimension: str
    rows: int
    keys: int
    seed: int
    columns: tuple[str, ...] | None = ("name", "segment")  # None: all of them

    def open(self) -> ChannelSession:
        """A channel of its own, on this process' connection."""
        request = ChannelRequest(self.dimension, self.columns, f"bench {self.seed}", KEY)
        return connections.to(Address(self.endpoint)).open(request)

    def batches(self, count: int) -> list[pa.RecordBatch]:
        """So many batches of distinct keys."""
        random = np.random.default_rng(self.seed)
        return [self._batch(random) for _ in range(count)]

    def _batch(self, random: np.random.Generator) -> pa.RecordBatch:
        # Distinct by construction: a start and a stride without a common factor with the rows.
        start, stride = int(random.integers(self.rows)), 7919
        keys = (start + stride * np.arange(self.keys, dtype=np.int64)) % self.rows
        return pa.record_batch([keys], schema=KEY)


def ask_at_pace(asking: Asking, *, lookups: int, interval_s: float) -> npt.NDArray[np.float64]:
    """Ask so many times, one after the other, one each interval; seconds from asking to the end."""
    session = asking.open()
    seconds = np.zeros(lookups)
    begun_s = time.monotonic()
    for index, keys in enumerate(asking.batches(lookups)):
        time.sleep(max(begun_s + index * interval_s - time.monotonic(), 0.0))
        asked_s = time.monotonic()
        session.look_up(SentKeys(QuestionId(index), keys, asked_s + TIMEOUT_S))
        _wait(session, asking.keys)
        seconds[index] = time.monotonic() - asked_s
    session.close()
    return seconds


def ask_without_end(asking: Asking, *, interval_s: float) -> None:
    """The same until the process is ended; without an interval as fast as answers come."""
    session = asking.open()
    question = 0
    while True:
        for keys in asking.batches(100):
            begun_s = time.monotonic()
            question += 1
            session.look_up(SentKeys(QuestionId(question), keys, begun_s + TIMEOUT_S))
            _wait(session, asking.keys)
            time.sleep(max(begun_s + interval_s - time.monotonic(), 0.0))


def ask_on_many_channels(asking: Asking, *, channels: int) -> None:
    """Ask once on each of so many channels, and take all answers."""
    sessions = [asking.open() for _ in range(channels)]
    for session, keys in zip(sessions, asking.batches(channels), strict=True):
        deadline_s = time.monotonic() + TIMEOUT_S
        session.look_up(SentKeys(QuestionId(1), keys, deadline_s))
    for session in sessions:
        _wait(session, asking.keys)
        session.close()


def _wait(session: ChannelSession, keys: int) -> None:
    while keys:
        keys -= sum(answered.answer.size for answered in session.answers(TIMEOUT_S))


IN_FLIGHT_KEYS = 20_000  # of a channel: what a lookup join has by default


@dataclass(frozen=True, slots=True)
class LookupLoad:
    """What one process asks for: the same number of batches on each of its channels."""

    channels: tuple[Asking, ...]
    batches: int


@dataclass(frozen=True, slots=True)
class LoadSpan:
    """When it was under way, on the clock that all processes share, and what came of it."""

    begun_s: float
    ended_s: float
    cpu_s: float  # of the process
    keys: int
    hits: int  # of those: answered from the cache
    row_bytes: int  # of the rows in the answers, as Arrow counts them


def lookup_load(load: LookupLoad, all_ready: threading.Barrier) -> LoadSpan:
    """Open the channels, wait until all processes are ready, and ask."""
    asked = [(asking.open(), asking.batches(load.batches)) for asking in load.channels]
    with ThreadPoolExecutor(len(asked)) as threads:
        all_ready.wait(TIMEOUT_S)
        begun_s, begun_cpu_s = time.monotonic(), time.process_time()
        counts = list(threads.map(lambda each: _ask_all(*each), asked))
        ended_s, ended_cpu_s = time.monotonic(), time.process_time()
    for session, _ in asked:
        session.close()
    return LoadSpan(
        begun_s,
        ended_s,
        ended_cpu_s - begun_cpu_s,
        keys=sum(count.keys for count in counts),
        hits=sum(count.hits for count in counts),
        row_bytes=sum(count.row_bytes for count in counts),
    )


def fill(asking: Asking) -> None:
    """Ask for all rows of the dimension once, so that they are in the cache."""
    session = asking.open()
    starts = range(0, asking.rows, asking.keys)
    keys = (np.arange(start, min(start + asking.keys, asking.rows)) for start in starts)
    count = _ask_all(session, (pa.record_batch([each], schema=KEY) for each in keys))
    session.close()
    assert count.keys == asking.rows


@dataclass(slots=True)
class _Count:
    keys: int = 0
    hits: int = 0
    row_bytes: int = 0


def _ask_all(session: ChannelSession, batches: Iterable[pa.RecordBatch]) -> _Count:
    count, asked_keys = _Count(), 0
    for number, keys in enumerate(batches):
        # A second batch is on its way while the first one is answered, whatever their size.
        most = max(IN_FLIGHT_KEYS - keys.num_rows, keys.num_rows)
        _take(session, count, until=asked_keys - most)
        deadline_s = time.monotonic() + TIMEOUT_S
        session.look_up(SentKeys(QuestionId(number), keys, deadline_s))
        asked_keys += keys.num_rows
    _take(session, count, until=asked_keys)
    return count


def _take(session: ChannelSession, count: _Count, *, until: int) -> None:
    while count.keys < until:
        for answered in session.answers(TIMEOUT_S):
            answer = answered.answer
            count.keys += answer.size
            count.hits += int(np.count_nonzero(answer.outcomes == Outcome.HIT))
            count.row_bytes += 0 if answer.rows is None else int(answer.rows.nbytes)


_START_TIMEOUT_S = 120.0


class ClientProcesses:
    """Groups of client processes, by how many they are; each group is started when it is used."""

    def __init__(self) -> None:
        self._context = get_context("forkserver")
        self._context.set_forkserver_preload([LookupLoad.__module__])
        self._groups: dict[int, ProcessPoolExecutor] = {}  # {processes: group}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Nothing to do before the first load."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop the processes."""
        self._stack.close()

    def fill(self, asking: Asking) -> None:
        """Let one process ask for all rows of a dimension."""
        self._group(1).submit(fill, asking).result()

    def run(self, loads: Sequence[LookupLoad]) -> list[LoadSpan]:
        """One load for each process, all at the same time."""
        group = self._group(len(loads))
        # None takes a second load: each waits, busy, until all of them are.
        running = [group.submit(_load_of, load) for load in loads]
        return [each.result() for each in running]

    def _group(self, processes: int) -> ProcessPoolExecutor:
        if processes not in self._groups:
            barrier = self._context.Barrier(processes, timeout=_START_TIMEOUT_S)
            group = ProcessPoolExecutor(
                processes, mp_context=self._context, initializer=_keep, initargs=(barrier,)
            )
            self._groups[processes] = self._stack.enter_context(group)
        return self._groups[processes]


# A barrier cannot be sent to a process that runs already, only be given to one that starts.
_kept: list[threading.Barrier] = []


def _keep(all_ready: threading.Barrier) -> None:
    _kept.append(all_ready)


def _load_of(load: LookupLoad) -> LoadSpan:
    return lookup_load(load, _kept[0])
