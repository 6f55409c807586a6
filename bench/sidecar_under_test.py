"""The sidecar of the Spark benchmarks: its settings, what it asked of PostgreSQL, and emptying it.

All from outside, by pages and requests that every operator has.
"""

import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from demo.sidecar import Sidecar, running_sidecar
from demo.totals import QUERIES, dimension_counts

Batch = Mapping[str, int | str]  # what a configuration says below `batch`

MAX_KEYS = 500  # of a query: what a dimension has by default
BY_DEFAULT: Batch = {"max_keys": MAX_KEYS}
DIMENSION = "customers"

_INVALIDATE = f"/v1/dimensions/{DIMENSION}/invalidate"
_JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class SidecarUnderTest:
    """A sidecar with the dimension of the workload."""

    sidecar: Sidecar

    @property
    def endpoint(self) -> str:
        """What Spark's side connects to."""
        return self.sidecar.endpoint

    def queries(self) -> int:
        """How many queries it sent to PostgreSQL since it began."""
        return sum(dimension_counts(self.sidecar.get("/metrics"), DIMENSION, QUERIES).values())

    def empty_cache(self) -> None:
        """Let it forget all rows."""
        connection = HTTPConnection("sidecar")
        with closing(connection), socket.socket(socket.AF_UNIX) as connection.sock:
            connection.sock.connect(str(self.sidecar.socket))  # where its owner is its admin
            connection.request("POST", _INVALIDATE, '{"all": true}', _JSON)
            answer = connection.getresponse()
            if answer.status != HTTPStatus.OK:
                raise HTTPException(answer.read().decode())


@contextmanager
def sidecar_under_test(
    dsn: str, folder: Path, *, batch: Batch = BY_DEFAULT
) -> Iterator[SidecarUnderTest]:
    """Start it over the table `customers`, which is asked in such batches; stopped at the end."""
    with running_sidecar(_settings(dsn, batch), folder) as sidecar:
        yield SidecarUnderTest(sidecar)


def _settings(dsn: str, batch: Batch) -> dict[str, Any]:
    customers = {
        "source": {"kind": "postgres", "dsn": dsn, "table": f"public.{DIMENSION}"},
        "key": ["id"],
        "cache": {"max_bytes": "512MiB", "ttl": "1h"},
        "batch": dict(batch),
    }
    return {"limits": {"memory": "1GiB"}, "dimensions": {DIMENSION: customers}}
