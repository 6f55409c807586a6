"""How row groups are read, and what is done when the file is another one."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lookup_core.changelog.change_decoder import RowChanges
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from service.connectors.parquet.row_groups import ParquetRowGroups
from tests.service.sources.parquet_folders import OFFERED, SCHEMA, write_rows
from tests.service.sources.source_contract import SourceCase, read_all, splits_of


async def test_rows_come_in_the_dimensions_types(tmp_path: Path) -> None:
    """Values are widened as the schema says, and pieces know where they end."""
    write_rows(tmp_path / "a.parquet", range(3), row_group_size=3)
    case = SourceCase(ParquetRowGroups(tmp_path / "a.parquet", columns=OFFERED), SCHEMA)

    async with splits_of(case) as splits, case.source.reader(SCHEMA) as reader:
        await reader.assign(splits[0], position=1)
        (piece,) = await reader.read()

    (change,) = piece.changes
    assert isinstance(change, RowChanges)
    assert change.keys.equals(pa.record_batch({"id": pa.array([1, 2])}))
    assert change.rows.schema.equals(SCHEMA.columns)
    assert change.rows.to_pylist()[0] == {"name": "name 1", "weight": 0.5}
    assert (piece.position, piece.total, piece.is_finished, piece.snapshot) == (3, 3, True, None)


async def test_keys_with_nulls_are_left_out(tmp_path: Path) -> None:
    """A row whose key has a NULL is asked for by nobody, but counts for the position."""
    rows = {"id": [1, None, 3], "name": ["a", "b", "c"], "weight": pa.nulls(3, pa.float32())}
    pq.write_table(pa.table(rows), tmp_path / "a.parquet")
    case = SourceCase(ParquetRowGroups(tmp_path / "a.parquet", columns=OFFERED), SCHEMA)

    async with splits_of(case) as splits:
        told = await read_all(case, splits)

    (pieces,) = told.pieces.values()
    assert [change[0] for change in told.changes[splits[0].id]] == [{"id": 1}, {"id": 3}]
    assert pieces[-1].position == 3


async def test_replaced_file_fails_the_load(tmp_path: Path) -> None:
    """Once another file is in its place nothing of either is told any more."""
    path = tmp_path / "a.parquet"
    write_rows(path, range(6), row_group_size=3)
    source = ParquetRowGroups(path, columns=OFFERED)

    async with source.enumerator(SCHEMA) as enumerator, source.reader(SCHEMA) as reader:
        splits = await enumerator.discover()
        write_rows(tmp_path / "b.parquet", range(9), row_group_size=3)
        (tmp_path / "b.parquet").replace(path)
        await reader.assign(splits[0], position=None)
        with pytest.raises(BackendError) as caught:
            await reader.read()

    assert caught.value.code is ErrorCode.TABLE_UNAVAILABLE
    assert caught.value.detail == f"{path}: was replaced while it was read"


async def test_values_that_do_not_fit_are_told(tmp_path: Path) -> None:
    """A value that does not become the dimension's type without a loss fails the load."""
    rows = {"id": [1], "at": pa.array([1], pa.timestamp("ns"))}
    pq.write_table(pa.table(rows), tmp_path / "a.parquet")
    schema = DimensionSchema(SCHEMA.key, pa.schema({"at": pa.timestamp("us")}))
    case = SourceCase(ParquetRowGroups(tmp_path / "a.parquet"), schema)

    async with splits_of(case) as splits:
        with pytest.raises(BackendError, match="would lose data") as caught:
            await read_all(case, splits)

    assert caught.value.code is ErrorCode.TABLE_UNAVAILABLE
