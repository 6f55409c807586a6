"""Lookup load without Spark: client channels that look up random keys, in several processes."""

import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.answer import Answer
from lookup_core.protocol.client_channel import ChannelRequest
from lookup_core.protocol.sent_lookups import RunId, SentKeys
from spark_client.transport.connection import ChannelSession
from spark_client.transport.connections import SidecarAddress, connections

TIMEOUT_S = 60.0
IN_FLIGHT_KEYS = 20_000  # per channel; the default of a lookup join
KEY = pa.schema([pa.field("id", pa.int64())])
_STRIDE = 7919  # a prime that does not divide the number of rows


@dataclass(frozen=True, slots=True)
class LookupClient:
    """A channel and the batches of keys that it looks up."""

    endpoint: str
    dimension: str
    rows: int  # of the dimension; ids start at 0
    batch_keys: int
    seed: int
    columns: tuple[str, ...] | None = ("name", "segment")  # None: all columns

    def open(self) -> ChannelSession:
        """Open the channel on the connection of this process."""
        request = ChannelRequest(self.dimension, self.columns, f"bench {self.seed}", KEY)
        return connections.to(SidecarAddress(self.endpoint)).open(request)

    def batches(self, count: int) -> list[pa.RecordBatch]:
        """Return `count` batches of distinct keys."""
        random = np.random.default_rng(self.seed)
        return [self._batch(random) for _ in range(count)]

    def _batch(self, random: np.random.Generator) -> pa.RecordBatch:
        steps = _STRIDE * np.arange(self.batch_keys, dtype=np.int64)
        keys = (int(random.integers(self.rows)) + steps) % self.rows
        return pa.record_batch([keys], schema=KEY)


def timed_lookups(
    client: LookupClient, *, lookups: int, interval_s: float
) -> npt.NDArray[np.float64]:
    """Look up one batch per interval; return the latencies in seconds."""
    session = client.open()
    seconds = np.zeros(lookups)
    begun_s = time.monotonic()
    for index, keys in enumerate(client.batches(lookups)):
        time.sleep(max(begun_s + index * interval_s - time.monotonic(), 0.0))
        sent_s = time.monotonic()
        session.look_up(SentKeys(RunId(index), keys, sent_s + TIMEOUT_S))
        _wait(session, client.batch_keys)
        seconds[index] = time.monotonic() - sent_s
    session.close()
    return seconds


def endless_lookups(client: LookupClient, *, interval_s: float) -> None:
    """Look up one batch per interval until the process is stopped; 0: without a pause."""
    session = client.open()
    run = 0
    while True:
        for keys in client.batches(100):
            begun_s = time.monotonic()
            run += 1
            session.look_up(SentKeys(RunId(run), keys, begun_s + TIMEOUT_S))
            _wait(session, client.batch_keys)
            time.sleep(max(begun_s + interval_s - time.monotonic(), 0.0))


def lookup_per_channel(client: LookupClient, *, channels: int) -> None:
    """Look up one batch on each of several channels, then read all answers."""
    sessions = [client.open() for _ in range(channels)]
    for session, keys in zip(sessions, client.batches(channels), strict=True):
        deadline_s = time.monotonic() + TIMEOUT_S
        session.look_up(SentKeys(RunId(1), keys, deadline_s))
    for session in sessions:
        _wait(session, client.batch_keys)
        session.close()


def _wait(session: ChannelSession, keys: int) -> None:
    while keys:
        keys -= sum(answered.answer.size for answered in session.answers(TIMEOUT_S))


@dataclass(frozen=True, slots=True)
class LookupLoad:
    """Load of one process: the same number of batches on each channel."""

    clients: tuple[LookupClient, ...]
    batches: int


@dataclass(frozen=True, slots=True)
class LoadSpan:
    """What one process measured; times are on the monotonic clock, which all processes share."""

    begun_s: float
    ended_s: float
    cpu_s: float  # of the process
    keys: int
    hits: int  # keys answered from the cache
    row_bytes: int  # of the rows in the answers, in Arrow


def lookup_load(load: LookupLoad, all_ready: threading.Barrier) -> LoadSpan:
    """Open the channels, wait until all processes are ready, and look up all batches."""
    work = [(client.open(), client.batches(load.batches)) for client in load.clients]
    with ThreadPoolExecutor(len(work)) as threads:
        all_ready.wait(TIMEOUT_S)
        begun_s, begun_cpu_s = time.monotonic(), time.process_time()
        counts = list(threads.map(lambda each: _look_up_all(*each), work))
        ended_s, ended_cpu_s = time.monotonic(), time.process_time()
    for session, _ in work:
        session.close()
    return LoadSpan(
        begun_s,
        ended_s,
        ended_cpu_s - begun_cpu_s,
        keys=sum(count.keys for count in counts),
        hits=sum(count.hits for count in counts),
        row_bytes=sum(count.row_bytes for count in counts),
    )


def fill(client: LookupClient) -> None:
    """Look up all rows of the dimension once, so that the cache has them."""
    session = client.open()
    starts = range(0, client.rows, client.batch_keys)
    keys = (np.arange(start, min(start + client.batch_keys, client.rows)) for start in starts)
    count = _look_up_all(session, (pa.record_batch([each], schema=KEY) for each in keys))
    session.close()
    assert count.keys == client.rows


@dataclass(slots=True)
class _Count:
    keys: int = 0
    hits: int = 0
    rows: pa.RecordBatch | None = None  # of the last answer; all rows have about the same size

    def add(self, answers: Iterable[Answer]) -> None:
        for answer in answers:
            self.keys += answer.size
            self.hits += answer.size - int(np.count_nonzero(answer.outcomes))  # HIT is 0
            self.rows = answer.rows

    @property
    def row_bytes(self) -> int:
        return 0 if self.rows is None else self.keys * int(self.rows.nbytes) // len(self.rows)


def _look_up_all(session: ChannelSession, batches: Iterable[pa.RecordBatch]) -> _Count:
    count, asked_keys = _Count(), 0
    for number, keys in enumerate(batches):
        # At least two batches are in flight, whatever their size.
        most = max(IN_FLIGHT_KEYS - keys.num_rows, keys.num_rows)
        _take(session, count, until=asked_keys - most)
        asked_keys += keys.num_rows
        # As a lookup join does: only those that are not cached are sent.
        found = session.cached(keys)
        if found is not None:
            count.add(found.answers)
        if found is None or found.size < keys.num_rows:
            open_keys = keys if found is None else keys.filter(found.is_open(keys.num_rows))
            sent = SentKeys(RunId(number), open_keys, time.monotonic() + TIMEOUT_S)
            if found is None:
                session.look_up(sent)
            else:
                session.send(sent)
    _take(session, count, until=asked_keys)
    return count


def _take(session: ChannelSession, count: _Count, *, until: int) -> None:
    while count.keys < until:
        count.add(answered.answer for answered in session.answers(TIMEOUT_S))


_START_TIMEOUT_S = 120.0


class ClientProcesses:
    """Pools of client processes, one per number of processes, started at first use."""

    def __init__(self) -> None:
        self._context = get_context("forkserver")
        self._context.set_forkserver_preload([LookupLoad.__module__])
        self._pools: dict[int, ProcessPoolExecutor] = {}  # {processes: pool}
        self._stack = ExitStack()

    def close(self) -> None:
        """Stop all processes."""
        self._stack.close()

    def fill(self, client: LookupClient) -> None:
        """Look up all rows of a dimension in one process."""
        self._pool(1).submit(fill, client).result()

    def run(self, loads: Sequence[LookupLoad]) -> list[LoadSpan]:
        """Run each load in a process of its own, all at the same time."""
        pool = self._pool(len(loads))
        # Each process takes one load, because it waits at the barrier for the others.
        running = [pool.submit(_run_load, load) for load in loads]
        return [each.result() for each in running]

    def _pool(self, processes: int) -> ProcessPoolExecutor:
        if processes not in self._pools:
            barrier = self._context.Barrier(processes, timeout=_START_TIMEOUT_S)
            pool = ProcessPoolExecutor(
                processes, mp_context=self._context, initializer=_keep, initargs=(barrier,)
            )
            self._pools[processes] = self._stack.enter_context(pool)
        return self._pools[processes]


# A process can get a barrier only when it starts.
_kept: list[threading.Barrier] = []


def _keep(all_ready: threading.Barrier) -> None:
    _kept.append(all_ready)


def _run_load(load: LookupLoad) -> LoadSpan:
    return lookup_load(load, _kept[0])
