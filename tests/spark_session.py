"""The Spark session of a test run, local and on loopback; imported by each conftest."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent


def local_session(folder: Path, *, batch_rows: int) -> SparkSession:
    """A session with two cores, whose files lie below `folder`."""
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.local.dir", str(folder))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", str(batch_rows))
        .getOrCreate()
    )


@pytest.fixture(scope="session")
def spark_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two cores and small batches, so that few records make several."""
    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as environ:
        environ.setenv("PYSPARK_PYTHON", sys.executable)
        environ.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *_python_path()]))
        environ.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        session = local_session(folder, batch_rows=50)
        session.sparkContext.setLogLevel("OFF")  # failing tasks are part of the tests
        yield session
        session.stop()


def _python_path() -> list[str]:
    given = os.environ.get("PYTHONPATH", "")
    return [given] if given else []
