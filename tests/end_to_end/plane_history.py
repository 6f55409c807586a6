"""A made-up history of the planes that fly in 2013, and a sidecar that serves it.

The same history from the same seed, with all that a history may have: gaps, versions from ever and
for ever, some that follow each other at once, and planes without any. Never two at a time.
"""

import datetime as dt
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.end_to_end.sidecar_process import SERVE, SidecarProcess

INSTANT = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    {
        "tailnum": pa.utf8(),
        "valid_from": INSTANT,
        "valid_to": INSTANT,
        "seats": pa.int32(),
        "livery": pa.utf8(),
    }
)
_NEW_YEAR = dt.datetime(2013, 1, 1, tzinfo=dt.UTC)
_HOURS = 365 * 24
_MOST_VERSIONS = 6


def plane_history(tailnums: Sequence[str], *, seed: int) -> pa.Table:
    """Versions of these planes, in no order."""
    chance = np.random.default_rng(seed)
    rows = [row for tailnum in tailnums for row in _versions(tailnum, chance)]
    chance.shuffle(rows)
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


@contextmanager
def history_sidecar(folder: Path, history: pa.Table) -> Iterator[SidecarProcess]:
    """It serves `planes`, and `planes_since`, where a version ends when the next one begins."""
    pq.write_table(history, folder / "planes.parquet")
    dimension = {"source": {"kind": "parquet", "path": "planes.parquet"}, "key": ["tailnum"]}
    ends = {"valid_from": "valid_from", "valid_to": "valid_to"}
    since = {"valid_from": "valid_from"}
    dimensions = {
        "planes": {**dimension, "versions": ends},
        "planes_since": {**dimension, "versions": since},
    }
    path = folder / "sidelook.yaml"
    path.write_text(json.dumps({"dimensions": dimensions}))  # which is YAML, too
    process = SidecarProcess(folder, (*SERVE, "--config", str(path)))
    with process.running():
        yield process


def _versions(tailnum: str, chance: np.random.Generator) -> Iterator[tuple[object, ...]]:
    count = int(chance.integers(0, _MOST_VERSIONS + 1))
    hours = np.sort(chance.choice(_HOURS, 2 * count, replace=False)).tolist()
    is_seamless = chance.random(count) < 0.5
    begins = [_at(hour) for hour in hours[::2]]
    ends = [
        begins[n + 1] if is_seamless[n] and n + 1 < count else _at(hours[2 * n + 1])
        for n in range(count)
    ]
    for number, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        is_first, is_last = number == 0, number == count - 1
        yield (
            tailnum,
            None if is_first and chance.random() < 0.3 else begin,
            None if is_last and chance.random() < 0.5 else end,
            int(chance.integers(2, 400)),
            None if chance.random() < 0.1 else f"livery {number}",
        )


def _at(hour: int) -> dt.datetime:
    return _NEW_YEAR + dt.timedelta(hours=hour)
