"""A row group of a Parquet file, and which file that is.

Values only; it is read by `parquet_row_group_reader`.
"""

from dataclasses import dataclass

import pyarrow.dataset as ds

from lookup_core.sources.split import Split
from service.backends.file_identity import FileIdentity


@dataclass(frozen=True, slots=True)
class ParquetRowGroup(Split):
    """Its position is how many of its rows were read."""

    fragment: ds.ParquetFileFragment  # of this row group alone
    identity: FileIdentity
    total: int  # rows
