"""Steady lookups after the job, so that the status page shows activity.

They run without Spark, which would need two cores. Answers are discarded.
"""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from itertools import count

import pyarrow as pa

from demo.dimension import DIMENSIONS, Dimension
from lookup_core.protocol.client_channel import ChannelRequest
from lookup_core.protocol.sent_lookups import RunId, SentKeys
from spark_client.transport.connections import SidecarAddress, connections

CHANNELS = 2  # per dimension
ROUND = 40  # flights per lookup of a channel
PAUSE_S = 0.2  # between lookups
TIMEOUT_S = 10.0  # of a lookup
STRIDE = 7_919  # a prime, so that consecutive flights come from different weeks


@contextmanager
def steady_lookups(endpoint: str, flights: pa.Table) -> Iterator[Callable[[float], None]]:
    """Look up keys of the flights in each dimension until the block ends.

    Yields a function that waits for some seconds and raises the exception of a failed channel.
    """
    stop = threading.Event()
    parts = [(dimension, part) for dimension in DIMENSIONS for part in range(CHANNELS)]
    with ThreadPoolExecutor(len(parts)) as threads:
        tasks = [
            threads.submit(
                _run_channel, SidecarAddress(endpoint), flights, each, part=part, stop=stop
            )
            for each, part in parts
        ]

        def watch(timeout_s: float) -> None:
            ended, _ = wait(tasks, timeout_s, return_when=FIRST_COMPLETED)
            for task in ended:
                task.result()

        try:
            yield watch
        finally:
            stop.set()


def _run_channel(
    address: SidecarAddress,
    flights: pa.Table,
    dimension: Dimension,
    *,
    part: int,
    stop: threading.Event,
) -> None:
    schema = _keys(flights, dimension, []).schema
    origin = f"steady lookups, part {part + 1}"
    request = ChannelRequest(dimension.name, dimension.columns, origin, schema)
    channel = connections.to(address).open(request)
    try:
        for number in count():
            if stop.wait(PAUSE_S):
                return
            first = (number * CHANNELS + part) * ROUND
            places = [(first + each) * STRIDE % flights.num_rows for each in range(ROUND)]
            keys = _keys(flights, dimension, places)
            now_ms = int(time.time() * 1000)
            channel.look_up(SentKeys(RunId(number), keys, time.monotonic() + TIMEOUT_S))
            left = keys.num_rows
            while left and not stop.is_set():
                left -= sum(answered.answer.size for answered in channel.answers(PAUSE_S))
            channel.mark(now_ms)
    finally:
        with suppress(OSError):  # the sidecar ended first
            channel.close()


def _keys(flights: pa.Table, dimension: Dimension, places: list[int]) -> pa.RecordBatch:
    """Return the distinct keys, without nulls, of the flights at these places."""
    chosen = flights.select(list(dimension.on)).take(pa.array(places, pa.int64()))
    keys = chosen.rename_columns(dimension.key).drop_null()
    distinct = keys.group_by(list(dimension.key)).aggregate([])
    return pa.RecordBatch.from_struct_array(distinct.to_struct_array().combine_chunks())
