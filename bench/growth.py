"""Rate of cached lookups as channels, dimensions, rows, batches or columns grow."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from bench.growth_cases import (
    ALIKE,
    CACHED_ROWS,
    COLUMNS,
    ROWS,
    WIDE,
    WIDE_ROWS,
    CaseFigures,
    LoadCase,
    LoadRound,
    cached_rows,
    column_names,
    rows_name,
    small_growths,
)
from bench.growth_report import MeasuredGrowth, growth_report
from bench.lookup_load import Asking, ClientProcesses
from bench.section import Section
from bench.timing import cpu_s, listener
from bench.workload import SEED, customers
from demo.sidecar import Sidecar, running_sidecar

# What a cache is given for each: enough, so that nothing ever has to go.
_ROW_BYTES = 200
_WIDE_ROW_BYTES = 2_000


def small_dimensions(folder: Path) -> dict[str, Any]:
    """Settings of some dimensions that are alike, and of one with many columns."""
    path = _written(folder / f"customers-{ROWS}.parquet", ROWS)
    wide = folder / "wide.parquet"
    pq.write_table(_wide(WIDE_ROWS, max(COLUMNS)), wide)
    alike = {name: _dimension(path, ROWS * _ROW_BYTES) for name in ALIKE}
    return {**alike, WIDE: _dimension(wide, WIDE_ROWS * _WIDE_ROW_BYTES)}


def dimensions_of_rows(folder: Path, sizes: Iterable[int]) -> dict[str, Any]:
    """Settings of a dimension for each size."""
    paths = {rows: _written(folder / f"customers-{rows}.parquet", rows) for rows in sizes}
    return {rows_name(rows): _dimension(path, rows * _ROW_BYTES) for rows, path in paths.items()}


def _written(path: Path, rows: int) -> Path:
    if not path.exists():
        pq.write_table(customers(rows, np.random.default_rng(SEED)), path)
    return path


def _wide(rows: int, columns: int) -> pa.Table:
    """Numbers, fractions and short texts, in turn."""
    random = np.random.default_rng(SEED)
    numbers = [random.integers(0, 10_000, rows) for _ in range(columns)]
    kinds = (pa.int64(), pa.float64(), pa.utf8())
    arrays = [pa.array(each).cast(kinds[index % 3]) for index, each in enumerate(numbers)]
    return pa.table([np.arange(rows), *arrays], names=["id", *column_names(columns)])


def _dimension(path: Path, cache_bytes: int) -> dict[str, Any]:
    return {
        "source": {"kind": "parquet", "path": str(path)},
        "key": ["id"],
        "cache": {"max_bytes": f"{cache_bytes}B", "ttl": "1d"},
        "batch": {"max_keys": 5000},
        "timeout": "60s",
    }


def load_rounds(
    cases: Sequence[LoadCase], sidecar: Sidecar, clients: ClientProcesses, *, rounds: int
) -> list[CaseFigures]:
    """The figures of each case, in order."""
    process = listener(sidecar.socket)
    measured: list[list[LoadRound]] = [[] for _ in cases]
    for number in range(rounds + 1):
        for case, counted in zip(cases, measured, strict=True):
            done = _run(case, process, clients)
            if number:
                counted.append(done)
    return [CaseFigures(case, counted) for case, counted in zip(cases, measured, strict=True)]


def _run(case: LoadCase, process: psutil.Process, clients: ClientProcesses) -> LoadRound:
    begun_s = cpu_s(process)
    spans = clients.run(case.loads)
    return LoadRound(tuple(spans), cpu_s(process) - begun_s)


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
