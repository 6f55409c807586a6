"""Sidecar of the Spark benchmarks: its settings, its query count, and emptying its cache.

Everything is done from outside, through the interfaces that operators use.
"""

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from demo.sidecar import Sidecar, running_sidecar
from demo.totals import QUERIES, dimension_counts

Batch = Mapping[str, int | str]  # settings below `batch`

MAX_KEYS = 500  # per query; the default of a dimension
DIMENSION = "customers"

_INVALIDATE = f"/v1/dimensions/{DIMENSION}/invalidate"
_JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class SidecarUnderTest:
    """A sidecar with the dimension of the workload."""

    sidecar: Sidecar

    def queries(self) -> int:
        """Return the number of queries sent to PostgreSQL since the start."""
        return sum(dimension_counts(self.sidecar.get("/metrics"), DIMENSION, QUERIES).values())

    def empty_cache(self) -> None:
        """Invalidate all rows; raises HTTPException if the sidecar refuses."""
        with self.admin() as admin:
            invalidate(admin, {"all": True})

    @contextmanager
    def admin(self) -> Iterator[HTTPConnection]:
        """Connect to the Unix socket, whose owner is an admin."""
        connection = HTTPConnection("sidecar")
        with closing(connection), socket.socket(socket.AF_UNIX) as connection.sock:
            connection.sock.connect(str(self.sidecar.socket))
            yield connection


def invalidate(admin: HTTPConnection, what: Mapping[str, object]) -> None:
    """Invalidate rows; raises HTTPException if the sidecar refuses."""
    admin.request("POST", _INVALIDATE, json.dumps(what), _JSON)
    answer = admin.getresponse()
    body = answer.read()
    if answer.status != HTTPStatus.OK:
        raise HTTPException(body.decode())


@contextmanager
def sidecar_under_test(
    dsn: str, folder: Path, *, batch: Batch | None = None
) -> Iterator[SidecarUnderTest]:
    """Start a sidecar over the table `customers`; it is stopped at the end."""
    customers = {
        "source": {"kind": "postgres", "dsn": dsn, "table": f"public.{DIMENSION}"},
        "key": ["id"],
        "cache": {"max_bytes": "512MiB", "ttl": "1h"},
        "batch": dict(batch or {"max_keys": MAX_KEYS}),
    }
    settings = {"limits": {"memory": "1GiB"}, "dimensions": {DIMENSION: customers}}
    with running_sidecar(settings, folder) as sidecar:
        yield SidecarUnderTest(sidecar)
