"""A load of lookups from one process: channels that keep some keys in flight, as a Spark task does.

A channel is asked and waited for by a thread of its own. Not at a pace: that is `lookup_client`.
"""

import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bench.lookup_client import KEY, TIMEOUT_S, Asking
from lookup_core.outcome import Outcome
from lookup_core.protocol.sent_lookups import AskedKeys, QuestionId
from spark_client.channel_session import ChannelSession

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
        session.ask(AskedKeys(QuestionId(number), keys, deadline_s))
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
