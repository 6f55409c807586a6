"""Clients that ask a sidecar without Spark: one channel each, at a pace, flat out, or in silence.

Run in processes of their own, so that they share nothing with the sidecar but its socket.
"""

import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.protocol.client_channel import ChannelRequest
from lookup_core.protocol.sent_lookups import AskedKeys, QuestionId
from spark_client.channel_session import ChannelSession
from spark_client.connections import Address, connections

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
        session.ask(AskedKeys(QuestionId(index), keys, asked_s + TIMEOUT_S))
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
            session.ask(AskedKeys(QuestionId(question), keys, begun_s + TIMEOUT_S))
            _wait(session, asking.keys)
            time.sleep(max(begun_s + interval_s - time.monotonic(), 0.0))


def ask_on_many_channels(asking: Asking, *, channels: int) -> None:
    """Ask once on each of so many channels, and take all answers."""
    sessions = [asking.open() for _ in range(channels)]
    for session, keys in zip(sessions, asking.batches(channels), strict=True):
        deadline_s = time.monotonic() + TIMEOUT_S
        session.ask(AskedKeys(QuestionId(1), keys, deadline_s))
    for session in sessions:
        _wait(session, asking.keys)
        session.close()


def _wait(session: ChannelSession, keys: int) -> None:
    while keys:
        keys -= sum(answered.answer.size for answered in session.answers(TIMEOUT_S))
