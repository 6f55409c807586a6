"""Lookups of the auditor of freshness by the streaming protocol, as a task of Spark makes them.

One question at a time; the order of a stream is the business of other tests.
"""

import time
from itertools import count

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.answer import Answer, Outcome
from lookup_core.protocol.client_channel import ChannelRequest
from lookup_core.protocol.sent_lookups import QuestionId, SentKeys
from spark_client.transport.channel_session import ChannelSession
from spark_client.transport.connections import Address, connections
from tests.chaos.freshness_answers import Told
from tests.chaos.freshness_table import ABSENT
from tests.end_to_end.sidecar_process import SidecarProcess

_KEY = pa.schema({"id": pa.int64()})
_PATIENCE_S = 30.0
_LABELS = np.array([outcome.label for outcome in Outcome], object)


class StreamConnection:
    """A channel, opened when the first keys are asked; for one thread."""

    def __init__(self, sidecar: SidecarProcess, dimension: str) -> None:
        self._address = Address(f"unix://{sidecar.socket}")
        self._request = ChannelRequest(dimension, ("version",), "the auditor", _KEY)
        self._session: ChannelSession | None = None
        self._questions = map(QuestionId, count(1))

    def close(self) -> None:
        """Give the channel up."""
        if self._session is not None:
            self._session.close()

    def bulk(self, keys: npt.NDArray[np.int64]) -> Told:
        """Many keys at once; raises SidelookError."""
        if self._session is None:
            self._session = connections.to(self._address).open(self._request)
        batch = pa.record_batch([pa.array(keys)], schema=_KEY)
        self._session.ask(SentKeys(next(self._questions), batch, time.monotonic() + _PATIENCE_S))
        told = Told(np.full(len(keys), None, object), np.full(len(keys), ABSENT, np.int64))
        answered = 0
        while answered < len(keys):
            for each in self._session.answers(_PATIENCE_S):
                _take(told, each.answer)
                answered += each.answer.size
        return told

    def single(self, key: int) -> Told:
        """One key."""
        return self.bulk(np.array([key], np.int64))


def _take(told: Told, answer: Answer) -> None:
    told.outcomes[answer.positions] = _LABELS[answer.outcomes]
    if answer.rows is not None:
        told.versions[answer.positions] = answer.rows["version"].to_numpy()
