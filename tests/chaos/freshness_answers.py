"""Answers as the auditor of freshness compares them, and its lookups by HTTP.

Those by the streaming protocol stand in `freshness_stream`.
"""

import http.client
import json
from collections import Counter
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tests.chaos.freshness_table import ABSENT, Versions
from tests.end_to_end.sidecar_process import SidecarProcess, _UnixConnection

_ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}


@dataclass(frozen=True, slots=True)
class Told:
    """What was answered to n keys."""

    outcomes: npt.NDArray[np.object_]  # [n] texts
    versions: Versions  # [n]

    @property
    def counts(self) -> Counter[str]:
        """How often which outcome."""
        return Counter(self.outcomes.tolist())


class LookupConnection(Protocol):
    """A way to ask one dimension; for one thread."""

    def close(self) -> None:
        """Forget the connection."""

    def bulk(self, keys: npt.NDArray[np.int64]) -> Told:
        """Many keys at once; raises OSError, HTTPException or SidelookError."""

    def single(self, key: int) -> Told:
        """One key; raises the same."""


class HttpConnection:
    """A connection that is kept, and made anew when it is lost; for one thread."""

    def __init__(self, sidecar: SidecarProcess, dimension: str) -> None:
        self._connection = _UnixConnection(sidecar.socket)
        self._path = f"/v1/dimensions/{dimension}"

    def close(self) -> None:
        """Forget the connection."""
        self._connection.close()

    def bulk(self, keys: npt.NDArray[np.int64]) -> Told:
        """Many keys at once; raises OSError or HTTPException."""
        batch = pa.record_batch([pa.array(keys)], names=["id"])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        body = sink.getvalue().to_pybytes()
        status, content, _ = self._ask("POST", f"{self._path}/lookup", body)
        if status != 200:
            raise http.client.HTTPException(content[:200])
        table = pa.ipc.open_stream(content).read_all()
        versions = table["version"].combine_chunks().fill_null(ABSENT).to_numpy()
        return Told(table["outcome"].to_numpy(zero_copy_only=False), versions)

    def single(self, key: int) -> Told:
        """One key, by the way that keeps the texts of its rows; raises as above."""
        status, content, outcome = self._ask("GET", f"{self._path}/rows/{key}", None)
        if status == 200:
            return _told(outcome, int(json.loads(content)["version"]))
        return _told("missing" if status == 404 else "error", ABSENT)

    def _ask(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes, str]:
        try:
            self._connection.request(method, path, body=body, headers=_ARROW if body else {})
            response = self._connection.getresponse()
            return response.status, response.read(), response.headers.get("Sidelook-Outcome", "")
        except (OSError, http.client.HTTPException):
            self._connection.close()
            raise


def _told(outcome: str, version: int) -> Told:
    return Told(np.array([outcome], object), np.array([version], np.int64))
