"""A made-up history of the planes that fly in 2013, and a sidecar that serves it.

The same history from the same seed, with all that a history may have: gaps, versions from ever and
for ever, some that follow each other at once, and planes without any. Never two at a time, but in
the one that is made of it where versions overlap.
"""

import datetime as dt
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tools.processes.sidecar_process import SERVE, SidecarProcess

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
_FAR = dt.datetime(9999, 12, 31, tzinfo=dt.UTC)  # as tables without NULL say "for ever"
_HOURS = 365 * 24
_HOUR_US = 3_600_000_000
_LATE_HOURS = 3_000  # so much longer do versions last that overlap
_MOST_VERSIONS = 6


def plane_history(tailnums: Sequence[str], *, seed: int) -> pa.Table:
    """Versions of these planes, in no order."""
    chance = np.random.default_rng(seed)
    rows = [row for tailnum in tailnums for row in _versions(tailnum, chance)]
    chance.shuffle(rows)
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def overlapping(history: pa.Table) -> pa.Table:
    """The same, but every third version lasts longer, beyond one or several that follow it."""
    number = np.arange(history.num_rows)
    late_us = np.where(number % 3, 0, number * 7919 % _LATE_HOURS * _HOUR_US)
    has_end = pc.less(history["valid_to"], pa.scalar(_FAR, INSTANT))
    later = pc.add(history["valid_to"], pa.array(late_us, pa.duration("us")))
    ends = pc.if_else(has_end, later, history["valid_to"])
    return history.set_column(SCHEMA.get_field_index("valid_to"), "valid_to", ends)


@contextmanager
def history_sidecar(folder: Path, history: pa.Table) -> Iterator[SidecarProcess]:
    """It serves `planes`, `planes_overlapping`, and `planes_since`: until the next one begins."""
    pq.write_table(history, folder / "planes.parquet")
    pq.write_table(overlapping(history), folder / "overlapping.parquet")
    ends = {"valid_from": "valid_from", "valid_to": "valid_to"}
    since = {"valid_from": "valid_from"}
    dimensions = {
        name: {"source": {"kind": "parquet", "path": path}, "key": ["tailnum"], "versions": times}
        for name, path, times in (
            ("planes", "planes.parquet", ends),
            ("planes_since", "planes.parquet", since),
            ("planes_overlapping", "overlapping.parquet", ends),
        )
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
            (None, _FAR, end, end)[chance.integers(4)] if is_last else end,
            int(chance.integers(2, 400)),
            None if chance.random() < 0.1 else f"livery {number}",
        )


def _at(hour: int) -> dt.datetime:
    return _NEW_YEAR + dt.timedelta(hours=hour)
