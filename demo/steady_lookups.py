"""Lookups that go on after the job, as its tasks made them: some life for who looks at the page.

Without Spark, which would take two cores for it. Nothing is judged, and nothing is kept.
"""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count

import pyarrow as pa

from demo.dimension import DIMENSIONS, Dimension
from lookup_core.protocol.client_channel import ChannelRequest
from lookup_core.protocol.sent_lookups import QuestionId, SentKeys
from spark_client.transport.connections import Address, connections
from spark_client.transport.interface import LookupChannel

CHANNELS = 2  # for each dimension, as so many tasks have
ROUND = 40  # flights that a channel asks for together
PAUSE_S = 0.2  # then
ANSWER_S = 10.0  # for one round; the sidecar says so when the database is away
STRIDE = 7_919  # a prime: one flight after the other comes from another week


@dataclass(frozen=True, slots=True)
class SteadyLookups:
    """Lookups under way; ended by who started them."""

    _tasks: list[Future[None]]

    def watch(self, timeout_s: float) -> None:
        """Look on for so long; raises what a channel failed with."""
        ended, _ = wait(self._tasks, timeout_s, return_when=FIRST_COMPLETED)
        for task in ended:
            task.result()


@contextmanager
def steady_lookups(endpoint: str, flights: pa.Table) -> Iterator[SteadyLookups]:
    """Let each dimension be asked by some channels of its own, until the block ends."""
    stop = threading.Event()
    parts = [(dimension, part) for dimension in DIMENSIONS for part in range(CHANNELS)]
    with ThreadPoolExecutor(len(parts)) as threads:
        asked = [
            threads.submit(_ask, Address(endpoint), flights, dimension, part=part, stop=stop)
            for dimension, part in parts
        ]
        try:
            yield SteadyLookups(asked)
        finally:
            stop.set()


def keys_of(flights: pa.Table, dimension: Dimension, places: list[int]) -> pa.RecordBatch:
    """The distinct keys that the flights at these places ask the dimension for; nulls ask none."""
    chosen = flights.select(list(dimension.on)).take(pa.array(places, pa.int64()))
    asked = chosen.rename_columns(dimension.key)
    distinct = asked.drop_null().group_by(list(dimension.key)).aggregate([])
    return pa.RecordBatch.from_struct_array(distinct.to_struct_array().combine_chunks())


def places_of(number: int, total: int) -> list[int]:
    """Where the flights of this round stand among all, scattered over the year."""
    return [(number * ROUND + each) * STRIDE % total for each in range(ROUND)]


def _ask(
    address: Address, flights: pa.Table, dimension: Dimension, *, part: int, stop: threading.Event
) -> None:
    schema = keys_of(flights, dimension, []).schema
    origin = f"flights that go on, part {part + 1}"
    request = ChannelRequest(dimension.name, dimension.columns, origin, schema)
    channel = connections.to(address).open(request)
    try:
        for number in count():
            if stop.wait(PAUSE_S):
                return
            places = places_of(number * CHANNELS + part, flights.num_rows)
            _look_up(channel, QuestionId(number), keys_of(flights, dimension, places), stop=stop)
    finally:
        with suppress(OSError):  # of a sidecar that ended first
            channel.close()


def _look_up(
    channel: LookupChannel, question: QuestionId, keys: pa.RecordBatch, *, stop: threading.Event
) -> None:
    now_ms = int(time.time() * 1000)  # these flights depart now
    channel.look_up(SentKeys(question, keys, time.monotonic() + ANSWER_S))
    left = keys.num_rows
    while left and not stop.is_set():
        left -= sum(answered.answer.size for answered in channel.answers(PAUSE_S))
    channel.mark(now_ms)
