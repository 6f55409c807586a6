"""A file or a folder in row groups."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.sources.reading_mode import ReadingMode
from service.sources.parquet_row_groups import ParquetRowGroups
from tests.service.sources.parquet_folders import SCHEMA, write_rows
from tests.service.sources.source_contract import (
    RepeatableSourceContract,
    SourceCase,
    read_all,
    splits_of,
)


class TestContract(RepeatableSourceContract):
    """What every source does."""

    @pytest.fixture
    def case(self, tmp_path: Path) -> SourceCase:
        """A file of three row groups, two of them of several batches."""
        write_rows(tmp_path / "a.parquet", range(100_000), row_group_size=40_000)
        return SourceCase(ParquetRowGroups(tmp_path / "a.parquet"), SCHEMA)


async def test_splits_are_row_groups(tmp_path: Path) -> None:
    """Each row group of each file is a split of its own, which knows its rows."""
    write_rows(tmp_path / "a.parquet", range(5), row_group_size=3)
    write_rows(tmp_path / "b.parquet", range(5, 6), row_group_size=3)
    source = ParquetRowGroups(tmp_path)

    async with source.enumerator(SCHEMA) as enumerator:
        splits = await enumerator.discover()

    assert (source.is_bounded, source.reading_mode) == (True, ReadingMode.SEQUENTIAL)
    assert enumerator.discovery_interval_s is None
    assert [(split.id, split.total) for split in splits] == [
        ("a.parquet row group 0", 3),
        ("a.parquet row group 1", 2),
        ("b.parquet row group 0", 1),
    ]


async def test_folders_give_their_columns(tmp_path: Path) -> None:
    """A column that is in the files' paths is read like all others."""
    for region in ("north", "south"):
        (tmp_path / f"region={region}").mkdir()
        write_rows(tmp_path / f"region={region}" / "a.parquet", range(1), row_group_size=3)
    schema = DimensionSchema(SCHEMA.key, pa.schema({"region": pa.utf8()}))
    case = SourceCase(ParquetRowGroups(tmp_path), schema)

    async with splits_of(case) as splits:
        told = await read_all(case, splits)

    rows = [row for changes in told.changes.values() for _, _, row, _ in changes]
    assert rows == [{"region": "north"}, {"region": "south"}]


async def test_missing_file_is_told(tmp_path: Path) -> None:
    """A file that is not there fails the search for splits."""
    source = ParquetRowGroups(tmp_path / "none.parquet")

    async with source.enumerator(SCHEMA) as enumerator:
        with pytest.raises(BackendError) as caught:
            await enumerator.discover()

    assert caught.value.code is ErrorCode.TABLE_UNAVAILABLE


async def test_file_without_rows_ends_at_once(tmp_path: Path) -> None:
    """A row group may be empty, as may the file."""
    empty = SCHEMA.key.empty_table().append_column("name", pa.array([], pa.utf8()))
    empty = empty.append_column("weight", pa.array([], pa.float32()))
    pq.write_table(empty, tmp_path / "a.parquet")
    case = SourceCase(ParquetRowGroups(tmp_path / "a.parquet"), SCHEMA)

    async with splits_of(case) as splits:
        told = await read_all(case, splits)

    assert [split.id for split in splits] == [*told.pieces]
    assert list(told.changes.values()) == []
