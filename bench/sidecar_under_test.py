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

from prometheus_client.parser import text_string_to_metric_families

from demo.sidecar import Sidecar, running_sidecar
from demo.totals import QUERIES, dimension_counts

Batch = Mapping[str, int | str]  # settings below `batch`

DIMENSION = "customers"

_FETCHED_KEYS = "sidelook_backend_batch_keys_sum"
_INVALIDATE = f"/v1/dimensions/{DIMENSION}/invalidate"
_JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class SidecarUnderTest:
    """A sidecar with the dimension of the workload."""

    sidecar: Sidecar

    def queries(self) -> int:
        """Return the number of queries sent to PostgreSQL since the start."""
        return sum(dimension_counts(self.sidecar.get("/metrics"), DIMENSION, QUERIES).values())

    def fetched_keys(self) -> int:
        """Return the number of keys in these queries."""
        samples = (
            sample
            for family in text_string_to_metric_families(self.sidecar.get("/metrics"))
            for sample in family.samples
        )
        of_queries = (each for each in samples if each.name == _FETCHED_KEYS)
        return int(sum(each.value for each in of_queries if each.labels["dimension"] == DIMENSION))

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
        "batch": dict(batch or {}),
    }
    settings = {"limits": {"memory": "1GiB"}, "dimensions": {DIMENSION: customers}}
    with running_sidecar(settings, folder) as sidecar:
        yield SidecarUnderTest(sidecar)
