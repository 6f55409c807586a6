"""The client on the oldest version of Spark that it is for, in an environment of its own."""

import datetime as dt
import json
import os
import subprocess
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.end_to_end.parquet_sidecar import url_of
from tests.end_to_end.spark_environment import EnvironmentUnavailable, python_with_spark
from tools.processes.sidecar_process import SERVE, SidecarProcess

ROOT = Path(__file__).parents[2]
OLDEST = "4.1.0"  # the README says so
TIMEOUT_S = 600.0
NOON = dt.datetime(2013, 1, 1, 12, tzinfo=dt.UTC)
THINGS = pa.table(
    {
        "id": pa.array([0, 1, 2], pa.int64()),
        "name": ["Ann", None, "Ćirić"],
        "amount": pa.array([Decimal("1.50")] * 3, pa.decimal128(9, 2)),
        "at": pa.array([NOON] * 3, pa.timestamp("us", "UTC")),
        "local": pa.array([NOON.replace(tzinfo=None)] * 3, pa.timestamp("us")),
        "day": pa.array([NOON.date()] * 3, pa.date32()),
    }
)
SHOWN = ["1.50", "2013-01-01 07:00:00", "2013-01-01 12:00:00", "2013-01-01"]
EXPECTED = {
    "version": OLDEST,
    "types": {
        "id": "bigint",
        "name": "string",
        "amount": "decimal(9,2)",
        "at": "timestamp",
        "local": "timestamp_ntz",
        "day": "date",
    },
    "joined": [
        ["0", "Ann", *SHOWN],
        ["1", None, *SHOWN],
        ["2", "Ćirić", *SHOWN],
        ["3", None, None, None, None, None],
    ],
    "named": [["0", "Ann"], ["1", None], ["2", "Ćirić"], ["3", None]],
    "spread": [["0"], ["1"], ["2"], ["3"]],
}


@pytest.fixture
def sidecar(folder: Path) -> Iterator[SidecarProcess]:
    """With one dimension, whose columns have types that versions of Spark treat differently."""
    pq.write_table(THINGS, folder / "things.parquet")
    dimension = {"source": {"kind": "parquet", "path": "things.parquet"}, "key": ["id"]}
    config = folder / "sidelook.yaml"
    config.write_text(json.dumps({"dimensions": {"things": dimension}}))  # which is YAML, too
    process = SidecarProcess(folder, (*SERVE, "--config", str(config)))
    with process.running():
        yield process


@pytest.fixture(scope="module")
def python() -> Path:
    """The Python that has the oldest Spark."""
    try:
        return python_with_spark(OLDEST)
    except EnvironmentUnavailable as error:
        pytest.skip(f"no PySpark {OLDEST}: {error}")


def test_operations_run_on_the_oldest_spark(python: Path, sidecar: SidecarProcess) -> None:
    """Join, function and repartition give the same rows and types as on the newest version."""
    environ = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": str(python),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    module = "tests.end_to_end.oldest_spark_program"

    ended = subprocess.run(
        [str(python), "-m", module, url_of(sidecar)],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1]) == EXPECTED
