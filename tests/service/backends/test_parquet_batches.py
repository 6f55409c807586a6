"""Rows of Parquet files come in their order and types, never too many bytes at a time."""

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from lookup_core.dimension_schema import DimensionSchema
from service.connectors.parquet.rows import parquet_batches

SCHEMA = DimensionSchema(pa.schema({"id": pa.int64()}), pa.schema({"name": pa.utf8()}))


def batches(path: Path, schema: DimensionSchema = SCHEMA) -> list[pa.RecordBatch]:
    """All of the file or folder."""
    found = ds.dataset(path, format="parquet", partitioning="hive" if path.is_dir() else None)
    return [each for part in found.get_fragments() for each in parquet_batches(part, schema)]


def test_rows_keep_their_order(tmp_path: Path) -> None:
    """Over all row groups, of which small ones come in one batch."""
    ids = pa.array(range(40_000), pa.int32())
    names = pa.array(["x"] * 40_000).dictionary_encode()
    pq.write_table(pa.table({"name": names, "id": ids}), tmp_path / "p", row_group_size=15_000)

    found = batches(tmp_path / "p")

    assert [batch.num_rows for batch in found] == [19_096, 19_096, 1_808]
    assert pa.Table.from_batches(found).column("id").to_pylist() == [*range(40_000)]
    assert found[0].schema == pa.schema([*SCHEMA.key, *SCHEMA.columns])


def test_wide_rows_come_in_small_batches(tmp_path: Path) -> None:
    """A value that is stored once may stand in all rows: a row group is not unpacked as a whole."""
    names = pa.DictionaryArray.from_arrays(pa.array([0] * 5_000, pa.int32()), ["x" * 50_000])
    pq.write_table(pa.table({"id": range(5_000), "name": names}), tmp_path / "p")
    before = pa.total_allocated_bytes()
    most = rows = 0

    for batch in parquet_batches(next(ds.dataset(tmp_path / "p").get_fragments()), SCHEMA):
        most, rows = max(most, pa.total_allocated_bytes() - before), rows + batch.num_rows

    assert (tmp_path / "p").stat().st_size < 100_000
    assert rows == 5_000
    assert most < 4 * 512 * 50_000  # bytes; all would be 250 MB


def test_folders_tell_columns(tmp_path: Path) -> None:
    """What the path says of a file counts, also where the file has such a column itself."""
    (tmp_path / "year=2013").mkdir()
    inside = pa.table({"id": [1, 2], "year": pa.array([0, 0], pa.int32())})
    pq.write_table(inside, tmp_path / "year=2013" / "p")
    schema = DimensionSchema(SCHEMA.key, pa.schema({"year": pa.int32()}))

    (found,) = batches(tmp_path, schema)

    assert found.to_pydict() == {"id": [1, 2], "year": [2013, 2013]}


def test_column_that_a_file_has_not_is_null(tmp_path: Path) -> None:
    """Files of one folder need not have the same columns."""
    pq.write_table(pa.table({"id": [1], "name": ["Ada"]}), tmp_path / "1")
    pq.write_table(pa.table({"id": [2]}), tmp_path / "2")

    names = [batch.column("name").to_pylist() for batch in batches(tmp_path)]

    assert names == [["Ada"], [None]]


def test_values_are_never_rounded(tmp_path: Path) -> None:
    """A value that the schema's type cannot hold is an error."""
    pq.write_table(pa.table({"id": pa.array([2**63], pa.uint64()), "name": ["x"]}), tmp_path / "p")

    with pytest.raises(pa.ArrowInvalid, match="not in range"):
        batches(tmp_path / "p")


def test_empty_file_has_no_batches(tmp_path: Path) -> None:
    """No rows, no batch."""
    pq.write_table(pa.table({"id": pa.array([], pa.int64())}), tmp_path / "p")

    assert batches(tmp_path / "p") == []
