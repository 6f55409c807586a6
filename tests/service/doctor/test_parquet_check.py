"""Dimensions that are files."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.doctor.backends.parquet_check import ParquetCheck
from tests.service.config.configuration import dimension
from tests.service.doctor.findings import gathered


@pytest.mark.parametrize(
    ("key", "severity", "remedy"), [("id", "ok", ""), ("ids", "error", "did you mean id?")]
)
async def test_key_must_be_in_the_file(
    tmp_path: Path, key: str, severity: str, remedy: str
) -> None:
    """A file with its key is well; a misspelt one has the nearest name as its remedy."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [1], "name": ["x"]}), path)
    config = dimension(source={"kind": "parquet", "path": str(path)}, key=[key])

    (finding,) = await gathered(ParquetCheck("a", config).findings())

    assert (finding.severity, finding.remedy) == (severity, remedy)
