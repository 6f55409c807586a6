"""How the rate of cached lookups changes when something grows: channels, dimensions, rows, keys.

Without Spark: clients ask as its workers do. What a whole job gains or loses is `speed`'s question.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.client_processes import ClientProcesses
from bench.growth_cases import (
    ALIKE,
    CACHED_ROWS,
    ROWS,
    WIDE,
    WIDE_ROWS,
    cached_rows,
    rows_name,
    small_growths,
)
from bench.growth_report import MeasuredGrowth, growth_report
from bench.growth_tables import dimensions_of_rows, small_dimensions
from bench.load_rounds import load_rounds
from bench.lookup_client import Asking
from bench.section import Section
from demo.sidecar import Sidecar, running_sidecar

FULL = (1_920_000, 3, CACHED_ROWS[-1])  # keys of a case, rounds, most rows in a cache
QUICK = (640_000, 2, 1_000_000)
_LARGE_MEMORY = "16GiB"  # for millions of rows; else limits are the default ones
_FILL_KEYS = 10_000


def growth(folder: Path, *, is_quick: bool) -> Section:
    """Measure each kind of growth; what the cache did not answer is wrong."""
    keys, rounds, largest = QUICK if is_quick else FULL
    own = folder / "growth"
    own.mkdir(parents=True, exist_ok=True)
    measured = [
        *_small(own, keys, rounds=rounds),
        *_large(own, keys, rounds=rounds, largest=largest),
    ]
    return growth_report(measured, rounds=rounds)


def _small(folder: Path, keys: int, *, rounds: int) -> list[MeasuredGrowth]:
    rows = {**dict.fromkeys(ALIKE, ROWS), WIDE: WIDE_ROWS}
    with _sidecar(folder, {"dimensions": small_dimensions(folder)}) as (sidecar, clients):
        for dimension, count in rows.items():
            clients.fill(_all_of(sidecar, dimension, count))
        growths = small_growths(sidecar.endpoint, keys)
        return [
            MeasuredGrowth(each, load_rounds(each.cases, sidecar, clients, rounds=rounds))
            for each in growths
        ]


def _large(folder: Path, keys: int, *, rounds: int, largest: int) -> list[MeasuredGrowth]:
    sizes = [rows for rows in CACHED_ROWS if rows <= largest]
    settings = {
        "limits": {"memory": _LARGE_MEMORY},
        "dimensions": dimensions_of_rows(folder, sizes),
    }
    with _sidecar(folder, settings) as (sidecar, clients):
        for rows in sizes:
            clients.fill(_all_of(sidecar, rows_name(rows), rows))
        each = cached_rows(sidecar.endpoint, keys, largest=largest)
        return [MeasuredGrowth(each, load_rounds(each.cases, sidecar, clients, rounds=rounds))]


@contextmanager
def _sidecar(folder: Path, settings: dict[str, Any]) -> Iterator[tuple[Sidecar, ClientProcesses]]:
    with running_sidecar(settings, folder) as sidecar, ClientProcesses() as clients:
        yield sidecar, clients


def _all_of(sidecar: Sidecar, dimension: str, rows: int) -> Asking:
    return Asking(sidecar.endpoint, dimension, rows, _FILL_KEYS, 0, None)
