"""What the end-to-end tests share: one Spark session, and one sidecar with Parquet files."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.parquet_sidecar import parquet_sidecar
from tests.end_to_end.sidecar_process import SidecarProcess
from tests.spark_session import spark_session

__all__ = ["sidecar_process", "spark_session"]


@pytest.fixture(scope="session")
def sidecar_process() -> Iterator[SidecarProcess]:
    """The sidecar of this run."""
    folder = Path(tempfile.mkdtemp(prefix="sidelook-"))  # short: sockets have short paths
    with parquet_sidecar(folder) as sidecar:
        yield sidecar
    shutil.rmtree(folder, ignore_errors=True)
