"""Loads of Parquet files: row groups are splits, and changed or damaged files fail the load."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lookup_core.changelog.change_decoder import RowChanges
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.sources.splits import ReadingMode
from service.connectors.parquet.row_groups import ParquetRowGroups
from service.file_identity import FileIdentity
from tests.service.connectors.parquet.parquet_folders import OFFERED, SCHEMA, write_rows
from tests.service.connectors.source_contract import ReadSplits, SourceCase, read_all, splits_of


async def loaded(path: Path) -> ReadSplits:
    """Load the file or folder."""
    case = SourceCase(ParquetRowGroups(path, columns=OFFERED), SCHEMA)
    async with splits_of(case) as splits:
        return await read_all(case, splits)


async def test_splits_are_row_groups(tmp_path: Path) -> None:
    """Each row group of each file is a split with its file, its number and its rows."""
    write_rows(tmp_path / "a.parquet", range(5), row_group_size=3)
    write_rows(tmp_path / "b.parquet", range(5, 6), row_group_size=3)
    source = ParquetRowGroups(tmp_path, columns=OFFERED)

    enumerator = source.enumerator(SCHEMA)
    async with enumerator:
        splits = await enumerator.discover()

    assert (source.is_bounded, source.reading_mode) == (True, ReadingMode.SEQUENTIAL)
    assert enumerator.discovery_interval_s is None
    assert [(split.id, split.total, split.fragment.row_groups[0].id) for split in splits] == [
        ("a.parquet row group 0", 3, 0),
        ("a.parquet row group 1", 2, 1),
        ("b.parquet row group 0", 1, 0),
    ]
    assert splits[0].identity == FileIdentity.of(tmp_path / "a.parquet")


async def test_large_rows_are_loaded_without_values(tmp_path: Path) -> None:
    """A row that exceeds the limit is known to exist, without its values."""
    write_rows(tmp_path / "a.parquet", range(8, 12), row_group_size=3)
    source = ParquetRowGroups(tmp_path / "a.parquet", columns=OFFERED, row_bytes=10)

    async with splits_of(SourceCase(source, SCHEMA)) as splits:
        read = await read_all(SourceCase(source, SCHEMA), splits)

    changes = [change for each in read.changes.values() for change in each]
    assert [(key["id"], row is not None) for key, _, row, _ in changes] == [
        *((8, True), (9, True), (10, False), (11, False))
    ]


async def test_rows_have_the_dimensions_types(tmp_path: Path) -> None:
    """Rows behind the position are read in the types of the dimension."""
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


async def test_null_keys_are_left_out(tmp_path: Path) -> None:
    """A row with NULL in its key only counts for the position; a file without rows ends at once."""
    rows = {"id": [1, None, 3], "name": ["a", "b", "c"], "weight": pa.nulls(3, pa.float32())}
    pq.write_table(pa.table(rows), tmp_path / "a.parquet")
    fields = pa.schema([*SCHEMA.key, *SCHEMA.columns])
    pq.write_table(fields.empty_table(), tmp_path / "none.parquet")

    found, none = await loaded(tmp_path / "a.parquet"), await loaded(tmp_path / "none.parquet")

    ((changes,), (pieces,)) = found.changes.values(), found.pieces.values()
    assert [change[0] for change in changes] == [{"id": 1}, {"id": 3}]
    assert pieces[-1].position == 3
    assert (len(none.pieces), [*none.changes.values()]) == (1, [])


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (None, "no such file"),
        (lambda _: b"", "size is 0 bytes"),
        (lambda whole: whole[: len(whole) // 2], "magic bytes not found"),  # while it is written
        (lambda whole: whole[:-4] + b"PARE", "encrypted"),
        (lambda whole: whole[:8] + bytes(40) + whole[48:], "page header"),
    ],
    ids=["missing", "empty", "half", "encrypted", "page"],
)
async def test_damaged_files_are_refused(
    tmp_path: Path, damage: Callable[[bytes], bytes] | None, reason: str
) -> None:
    """A missing or damaged file fails the load, with its name and the reason."""
    path = tmp_path / "a.parquet"
    if damage is not None:
        write_rows(path, range(5), row_group_size=3)
        path.write_bytes(damage(path.read_bytes()))

    with pytest.raises(BackendError) as caught:
        await loaded(path)

    start = "no such file" if damage is None else "cannot be read as Parquet ("
    assert caught.value.code is ErrorCode.TABLE_UNAVAILABLE
    assert caught.value.detail.startswith(f"{path}: {start}")
    assert reason in caught.value.detail


@pytest.mark.parametrize(
    ("columns", "described"),
    [
        (["name"], {"name": pa.binary()}),  # another type
        (None, {"name": pa.utf8(), "weight": pa.float32()}),  # a new column
        (["name"], {"name": pa.utf8(), "weight": pa.float32()}),  # another list
    ],
)
async def test_changed_columns_are_refused(
    tmp_path: Path, columns: list[str] | None, described: dict[str, pa.DataType]
) -> None:
    """A file whose columns are not those of the description fails the load."""
    write_rows(tmp_path / "a.parquet", range(5), row_group_size=3)
    source = ParquetRowGroups(tmp_path / "a.parquet", columns=columns)
    schema = DimensionSchema(SCHEMA.key, pa.schema(described))

    async with source.enumerator(schema) as enumerator:
        with pytest.raises(BackendError) as caught:
            await enumerator.discover()

    expected = f"{tmp_path / 'a.parquet'}: its columns changed since its schema was read"
    assert (caught.value.code, caught.value.detail) == (ErrorCode.SCHEMA_CHANGED, expected)


async def test_replaced_file_fails_the_load(tmp_path: Path) -> None:
    """A file that is replaced between discovery and read fails the load."""
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

    expected = f"{path}: was replaced during the read"
    assert (caught.value.code, caught.value.detail) == (ErrorCode.TABLE_UNAVAILABLE, expected)
