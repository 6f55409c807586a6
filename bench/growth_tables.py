"""The dimensions that growth is measured on, as Parquet files, and the settings that offer them.

The same numbers give the same files; a file that is there is not written again.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.growth_cases import ALIKE, COLUMNS, ROWS, WIDE, WIDE_ROWS, column_names, rows_name
from bench.workload import SEED, customers

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
