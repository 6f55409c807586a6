"""A file or a folder in row groups."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.sources.splits import ReadingMode
from service.connectors.parquet.row_groups import ParquetRowGroups
from tests.service.sources.parquet_folders import OFFERED, SCHEMA, write_rows
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
        return SourceCase(ParquetRowGroups(tmp_path / "a.parquet", columns=OFFERED), SCHEMA)


async def test_splits_are_row_groups(tmp_path: Path) -> None:
    """Each row group of each file is a split of its own, which knows its rows."""
    write_rows(tmp_path / "a.parquet", range(5), row_group_size=3)
    write_rows(tmp_path / "b.parquet", range(5, 6), row_group_size=3)
    source = ParquetRowGroups(tmp_path, columns=OFFERED)

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
    case = SourceCase(ParquetRowGroups(tmp_path, columns=["region"]), schema)

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


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda _: b"", "size is 0 bytes"),
        (lambda whole: whole[: len(whole) // 2], "magic bytes not found"),  # while it is written
        (lambda whole: whole[:-4] + b"PARE", "encrypted"),
        (lambda whole: whole[:8] + bytes(40) + whole[48:], "page header"),
    ],
)
async def test_damaged_file_is_told(
    tmp_path: Path, damage: Callable[[bytes], bytes], reason: str
) -> None:
    """Whatever is wrong with a file, reading it fails with its name, and with what is wrong."""
    path = tmp_path / "a.parquet"
    write_rows(path, range(5), row_group_size=3)
    path.write_bytes(damage(path.read_bytes()))
    case = SourceCase(ParquetRowGroups(path, columns=OFFERED), SCHEMA)

    with pytest.raises(BackendError) as caught:
        async with splits_of(case) as splits:
            await read_all(case, splits)

    assert caught.value.code is ErrorCode.TABLE_UNAVAILABLE
    assert caught.value.detail.startswith(f"{path}: cannot be read as Parquet (")
    assert reason in caught.value.detail


async def test_empty_folder_is_told(tmp_path: Path) -> None:
    """A folder that is emptied is no table without rows."""
    source = ParquetRowGroups(tmp_path, columns=OFFERED)

    async with source.enumerator(SCHEMA) as enumerator:
        with pytest.raises(BackendError, match="no file is in this folder"):
            await enumerator.discover()


async def test_file_without_rows_ends_at_once(tmp_path: Path) -> None:
    """A row group may be empty, as may the file."""
    empty = SCHEMA.key.empty_table().append_column("name", pa.array([], pa.utf8()))
    empty = empty.append_column("weight", pa.array([], pa.float32()))
    pq.write_table(empty, tmp_path / "a.parquet")
    case = SourceCase(ParquetRowGroups(tmp_path / "a.parquet", columns=OFFERED), SCHEMA)

    async with splits_of(case) as splits:
        told = await read_all(case, splits)

    assert [split.id for split in splits] == [*told.pieces]
    assert list(told.changes.values()) == []


@pytest.mark.parametrize(
    ("columns", "described"),
    [
        (["name"], {"name": pa.binary()}),  # of another type
        (None, {"name": pa.utf8(), "weight": pa.float32()}),  # a column has come
        (["name"], {"name": pa.utf8(), "weight": pa.float32()}),  # another list in other parts
    ],
)
async def test_other_columns_are_told(
    tmp_path: Path, columns: list[str] | None, described: dict[str, pa.DataType]
) -> None:
    """A file whose columns are not those that were described is not read."""
    write_rows(tmp_path / "a.parquet", range(5), row_group_size=3)
    source = ParquetRowGroups(tmp_path / "a.parquet", columns=columns)
    schema = DimensionSchema(SCHEMA.key, pa.schema(described))

    async with source.enumerator(schema) as enumerator:
        with pytest.raises(BackendError) as caught:
            await enumerator.discover()

    expected = f"{tmp_path / 'a.parquet'}: has other columns than when it was described"
    assert (caught.value.code, caught.value.detail) == (ErrorCode.SCHEMA_CHANGED, expected)
