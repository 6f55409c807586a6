"""Parquet files of several row groups, for tests of their readers."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lookup_core.dimension_schema import DimensionSchema

SCHEMA = DimensionSchema(
    pa.schema({"id": pa.int64()}), pa.schema({"name": pa.utf8(), "weight": pa.float32()})
)
OFFERED = SCHEMA.columns.names


def write_rows(path: Path, numbers: range, *, row_group_size: int) -> None:
    """Write rows of these numbers, in types wider or narrower than those of the dimension."""
    columns = {
        "id": pa.array(numbers, pa.uint32()),
        "name": pa.array([f"name {number}" for number in numbers], pa.large_utf8()),
        "weight": pa.array([number / 2 for number in numbers], pa.float32()),
        "other": pa.nulls(len(numbers), pa.int64()),
    }
    pq.write_table(pa.table(columns), path, row_group_size=row_group_size)
