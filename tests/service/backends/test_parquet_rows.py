"""Row groups of a file are read in steps that fit what their rows turn out to be."""

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from lookup_core.dimension_schema import DimensionSchema
from service.connectors.parquet.rows import ParquetRows, row_fields

FIELDS = pa.schema({"id": pa.int64(), "name": pa.utf8()})


def step_rows(path: Path, group: int = 0, fields: pa.Schema = FIELDS) -> list[int]:
    """How many rows each step through the row group has."""
    (fragment,) = ds.dataset(path).get_fragments()
    with ParquetRows(fragment) as rows:
        return [batch.num_rows for batch in rows.steps(group, fields)]


def write(path: Path, name: str, count: int = 5_000, **options: int) -> Path:
    """A file whose rows have all the same name, which is stored once."""
    names = pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), [name])
    pq.write_table(pa.table({"id": range(count), "name": names}), path / "p", **options)
    return path / "p"


def test_narrow_rows_come_in_long_steps(tmp_path: Path) -> None:
    """A step has its own price, which many rows share."""
    assert step_rows(write(tmp_path, "x")) == [4_096, 904]


def test_wide_rows_come_in_short_steps(tmp_path: Path) -> None:
    """As many as eight mebibytes hold, by the first rows of the row group."""
    path = write(tmp_path, "x" * 8_000, count=2_500)

    assert step_rows(path) == [1_046, 1_046, 408]
    assert step_rows(path, fields=pa.schema({"id": pa.int64()})) == [2_500]


def test_steps_have_their_least_length(tmp_path: Path) -> None:
    """Fewer rows than those that tell how wide they are are never worth a step."""
    assert step_rows(write(tmp_path, "x" * 50_000, count=1_200)) == [512, 512, 176]


def test_row_groups_are_read_alone(tmp_path: Path) -> None:
    """Also where they are shorter than a first look, or have no row at all."""
    path = write(tmp_path, "x", count=700, row_group_size=600)
    pq.write_table(pa.table({"id": pa.array([], pa.int64())}), tmp_path / "none")

    assert [step_rows(path, group) for group in (0, 1)] == [[600], [100]]
    assert step_rows(tmp_path / "none") == []


def test_key_may_be_a_column_too() -> None:
    """It is read once."""
    schema = DimensionSchema(pa.schema({"id": pa.int64()}), pa.schema([*FIELDS][::-1]))

    assert row_fields(schema) == FIELDS
