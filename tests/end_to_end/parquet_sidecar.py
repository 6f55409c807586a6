"""A sidecar with dimensions from Parquet files, for tests of the client against the real one.

Customers by number; places by a text with any character and a number; tiers by a small number.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tools.processes.sidecar_process import SidecarProcess

CUSTOMERS = pa.table(
    {
        "id": pa.array(range(1000), pa.int64()),
        "name": [f"customer {number}" for number in range(1000)],
        "tier": pa.array([number % 5 for number in range(1000)], pa.int32()),
    }
)
TEXTS = [
    "",
    " ",
    "a",
    "A",
    "a|b",
    "a,b",
    "é",
    "e\u0301",
    "\n",
    "\t'\"\\",
    "😀",
    "\u200b",
    "%s",
    "NULL",
]
PLACES = pa.table(
    {
        "text": [text for text in TEXTS for _ in range(2)],
        "number": pa.array([0, 1] * len(TEXTS), pa.int64()),
        "place": [None if text == "A" else f"<{text}>" for text in TEXTS for _ in range(2)],
    }
)
TIERS = pa.table({"tier": pa.array(range(5), pa.int32()), "label": list("abcde")})
_CONFIG = """
listen: {unix: sidelook.sock, http: null}
dimensions:
  customers: {source: {kind: parquet, path: customers.parquet}, key: [id], timeout: 60s}
  places: {source: {kind: parquet, path: places.parquet}, key: [text, number], timeout: 60s}
  tiers: {source: {kind: parquet, path: tiers.parquet}, key: [tier], timeout: 60s}
"""


@contextmanager
def parquet_sidecar(folder: Path) -> Iterator[SidecarProcess]:
    """The sidecar as its own process, while it runs."""
    sidecar = stopped_parquet_sidecar(folder)
    with sidecar.running():
        yield sidecar


def stopped_parquet_sidecar(folder: Path) -> SidecarProcess:
    """The sidecar with its files, for who starts and stops it."""
    pq.write_table(CUSTOMERS, folder / "customers.parquet")
    pq.write_table(PLACES, folder / "places.parquet")
    pq.write_table(TIERS, folder / "tiers.parquet")
    config = folder / "config.yaml"
    config.write_text(_CONFIG)
    command = (sys.executable, "-m", "service", "serve", "--config", str(config))
    return SidecarProcess(folder, command)


def url_of(sidecar: SidecarProcess) -> str:
    """Where the client finds it."""
    return f"unix://{os.fspath(sidecar.socket)}"
