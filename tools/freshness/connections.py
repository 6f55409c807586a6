"""Lookups of the freshness audit: over HTTP, and over the streaming protocol like a Spark task."""

import http.client
import json
import time
from collections import Counter
from dataclasses import dataclass
from itertools import count
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lookup_core.answer import Answer, Outcome
from lookup_core.protocol.client_channel import ChannelRequest
from lookup_core.protocol.sent_lookups import RunId, SentKeys
from spark_client.transport.connection import ChannelSession, Connection
from spark_client.transport.connections import SidecarAddress, connections
from tools.freshness.naive_reader import READER_TWINS, FaultyConnection
from tools.freshness.table import ABSENT, NEVER, Versions
from tools.processes.sidecar_process import SidecarProcess, UnixConnection

_ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}
_KEY = pa.schema({"id": pa.int64()})
_PATIENCE_S = 30.0
_LABELS = np.array([outcome.label for outcome in Outcome], object)


@dataclass(frozen=True, slots=True)
class LookupAnswers:
    """Outcomes and versions of n keys."""

    outcomes: npt.NDArray[np.object_]  # [n] texts
    versions: Versions  # [n]

    @property
    def counts(self) -> Counter[str]:
        """{outcome: number of keys}."""
        return Counter(self.outcomes.tolist())


class LookupConnection(Protocol):
    """A connection to one dimension, for one thread."""

    def close(self) -> None:
        """Close the connection."""

    def bulk(self, keys: npt.NDArray[np.int64]) -> LookupAnswers:
        """Look up many keys; raises OSError, HTTPException or SidelookError."""

    def single(self, key: int) -> LookupAnswers:
        """Look up one key; raises the same."""


class HttpConnection:
    """A persistent HTTP connection, reopened when it is lost; for one thread."""

    def __init__(self, sidecar: SidecarProcess, dimension: str) -> None:
        self._connection = UnixConnection(sidecar.socket)
        self._path = f"/v1/dimensions/{dimension}"

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def bulk(self, keys: npt.NDArray[np.int64]) -> LookupAnswers:
        """Look up many keys by Arrow; raises OSError or HTTPException."""
        batch = pa.record_batch([pa.array(keys)], names=["id"])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        body = sink.getvalue().to_pybytes()
        status, content, _ = self._request("POST", f"{self._path}/lookup", body)
        if status != 200:
            raise http.client.HTTPException(content[:200])
        table = pa.ipc.open_stream(content).read_all()
        return LookupAnswers(table["outcome"].to_numpy(zero_copy_only=False), _versions(table))

    def single(self, key: int) -> LookupAnswers:
        """Look up one key by the route of single rows, which caches texts; raises as above."""
        status, content, outcome = self._request("GET", f"{self._path}/rows/{key}", None)
        if status == 200:
            row = json.loads(content)
            is_whole = row["payload"] == f"v{row['version']}"
            return _single_answer(outcome, int(row["version"]) if is_whole else NEVER)
        return _single_answer("missing" if status == 404 else "error", ABSENT)

    def _request(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes, str]:
        try:
            self._connection.request(method, path, body=body, headers=_ARROW if body else {})
            response = self._connection.getresponse()
            return response.status, response.read(), response.headers.get("Sidelook-Outcome", "")
        except (OSError, http.client.HTTPException):
            self._connection.close()
            raise


class StreamConnection:
    """A channel of the streaming protocol, opened by the first lookup; for one thread."""

    def __init__(self, connection: Connection, dimension: str) -> None:
        self._connection = connection
        self._request = ChannelRequest(dimension, ("version", "payload"), "the auditor", _KEY)
        self._session: ChannelSession | None = None
        self._runs = map(RunId, count(1))

    def close(self) -> None:
        """Close the channel; the next lookup opens another one."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def bulk(self, keys: npt.NDArray[np.int64]) -> LookupAnswers:
        """Look up many keys; raises SidelookError."""
        if self._session is None:
            self._session = self._connection.open(self._request)
        self._look_up(self._session, keys)
        answers = _no_answers(len(keys))
        answered = 0
        while answered < len(keys):
            for each in self._session.answers(_PATIENCE_S):
                _merge(answers, each.answer)
                answered += each.answer.size
        return answers

    def single(self, key: int) -> LookupAnswers:
        """Look up one key."""
        return self.bulk(np.array([key], np.int64))

    def without_sidecar(self, keys: npt.NDArray[np.int64]) -> LookupAnswers:
        """Look up keys that need no answer of the sidecar, and give the others up.

        The channel is open.
        """
        assert self._session is not None
        run, answers = self._look_up(self._session, keys), _no_answers(len(keys))
        for each in self._session.answers(0.0):
            _merge(answers, each.answer)
        self._session.abandon(run)
        return answers

    def _look_up(self, session: ChannelSession, keys: npt.NDArray[np.int64]) -> RunId:
        run = next(self._runs)
        batch = pa.record_batch([pa.array(keys)], schema=_KEY)
        session.look_up(SentKeys(run, batch, time.monotonic() + _PATIENCE_S))
        return run


def connection_to(sidecar: SidecarProcess, twin: str | None) -> Connection:
    """A connection for channels of the streaming protocol; `twin` is one of `naive_reader`."""
    url = f"unix://{sidecar.socket}"
    return FaultyConnection(url) if twin in READER_TWINS else connections.to(SidecarAddress(url))


def _no_answers(count: int) -> LookupAnswers:
    return LookupAnswers(np.full(count, None, object), np.full(count, ABSENT, np.int64))


def _single_answer(outcome: str, version: int) -> LookupAnswers:
    return LookupAnswers(np.array([outcome], object), np.array([version], np.int64))


def _merge(answers: LookupAnswers, answer: Answer) -> None:
    answers.outcomes[answer.positions] = _LABELS[answer.outcomes]
    if answer.rows is not None:
        answers.versions[answer.positions] = _versions(answer.rows)


def _versions(rows: pa.Table | pa.RecordBatch) -> Versions:
    version, payload = rows["version"], rows["payload"]
    expected = pc.binary_join_element_wise("v", version.cast(pa.string()), "")
    is_other = pc.fill_null(pc.not_equal(payload, expected), fill_value=False)
    found: Versions = pc.fill_null(pc.if_else(is_other, NEVER, version), ABSENT).to_numpy()
    return found
