"""What a row group knows of itself."""

from pathlib import Path

from service.connectors.parquet.file import FileIdentity
from service.connectors.parquet.row_groups import ParquetRowGroups
from tests.service.sources.parquet_folders import OFFERED, SCHEMA, write_rows


async def test_row_group_knows_its_file(tmp_path: Path) -> None:
    """Of several in a file, each is one alone, and can tell whether the file is still the same."""
    write_rows(tmp_path / "a.parquet", range(5), row_group_size=3)
    source = ParquetRowGroups(tmp_path / "a.parquet", columns=OFFERED)

    async with source.enumerator(SCHEMA) as enumerator:
        splits = await enumerator.discover()

    identity = FileIdentity.of(tmp_path / "a.parquet")
    assert [(split.identity, split.total) for split in splits] == [(identity, 3), (identity, 2)]
    assert [split.fragment.row_groups[0].id for split in splits] == [0, 1]
