"""A row group of a Parquet file, and which file that is.

Values only; it is read by `parquet_row_group_reader`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.dataset as ds

from lookup_core.sources.split import Split


@dataclass(frozen=True, slots=True)
class ParquetRowGroup(Split):
    """Its position is how many of its rows were read."""

    fragment: ds.ParquetFileFragment  # of this row group alone
    schema: pa.Schema  # of the whole folder, with the columns that are in its files' paths
    identity: "FileIdentity"
    total: int  # rows


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """What differs once a file is replaced, or written to."""

    inode: int
    modified_ns: int
    size: int

    @classmethod
    def of(cls, path: Path) -> Self:
        """Of the file that is there now; raises OSError."""
        found = path.stat()
        return cls(found.st_ino, found.st_mtime_ns, found.st_size)
