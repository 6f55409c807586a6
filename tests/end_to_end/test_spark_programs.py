"""Drivers in processes of their own: Connect, executors, restarts, and the oldest Spark."""

import datetime as dt
import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from demo.maven_libraries import download_cache
from spark_client.lookup_settings import OutputMode
from tests.end_to_end.restart_queries import FILES, ROWS, RestartQueries
from tests.end_to_end.sidecars import configured, parquet, url_of
from tests.end_to_end.spark_program import SparkProgram
from tools.processes.sidecar_process import SidecarFigures, SidecarProcess
from tools.processes.spark_cluster import BatchGate
from tools.processes.until import until

START_TIMEOUT_S = 120.0  # of a driver, or of a cluster of five JVMs
OLDEST = "4.1.0"  # named in the README
INSTALL_TIMEOUT_S = 1200.0
SAME_AS_HERE = ("numpy", "pandas", "pyarrow", "websockets")
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
TYPES = "bigint string decimal(9,2) timestamp timestamp_ntz date"
EXPECTED = {
    "version": OLDEST,
    "types": dict(zip(THINGS.column_names, TYPES.split(), strict=True)),
    "joined": [
        ["0", "Ann", *SHOWN],
        ["1", None, *SHOWN],
        ["2", "Ćirić", *SHOWN],
        ["3", None, None, None, None, None],
    ],
    "named": [["0", "Ann"], ["1", None], ["2", "Ćirić"], ["3", None]],
    "spread": [["0"], ["1"], ["2"], ["3"]],
}


def test_same_calls_work_under_connect(sidecar_process: SidecarProcess) -> None:
    """Under Spark Connect batch and stream are enriched in all modes, and windows close."""
    output = SparkProgram("connect_program", [url_of(sidecar_process)]).output()

    assert output.result == {
        "session": "pyspark.sql.connect.session",
        "tiers": {how: [0, 1, 2, 3, 4, 0, 1] for how in (*OutputMode, "divided")},
        "windows": 9,  # the last one stays open
    }
    assert "Traceback" not in output.standard_error
    SidecarFigures(sidecar_process).seconds_until_at_rest()


def test_executors_share_a_sidecar(sidecar_process: SidecarProcess, tmp_path: Path) -> None:
    """Executors have a connection each; a failed task and a lost executor change no row."""
    figures = SidecarFigures(sidecar_process)
    program = SparkProgram("cluster_program", (url_of(sidecar_process), str(tmp_path)))

    with ThreadPoolExecutor() as programs:
        output = programs.submit(program.output)
        until(lambda: figures.channels() == 2 or output.done(), within_s=START_TIMEOUT_S)
        channels = sidecar_process.get("/v1/channels").json()["channels"]
        BatchGate(tmp_path, rows=0).open()

    assert output.result().result == []
    assert len({channel["connection"] for channel in channels}) == 2
    origins = " ".join(channel["origin"] for channel in channels)
    assert sorted(re.findall(r"partition \d", origins)) == ["partition 0", "partition 1"]
    assert {"fail", "lose_executor"} <= {path.name for path in tmp_path.iterdir()}
    figures.seconds_until_at_rest()


def kill_in_mid_batch(queries: RestartQueries, *, committed: int) -> None:
    """Kill driver and JVM while the batch after `committed` batches is being written."""
    arguments = (queries.url, str(queries.events), str(queries.folder), str(committed))
    strays = queries.stray_files()

    def is_writing() -> bool:
        return queries.committed_batches() >= committed and queries.stray_files() > strays

    with SparkProgram("restart_queries", arguments).running() as driver:
        until(lambda: is_writing() or driver.poll() is not None, within_s=START_TIMEOUT_S)
    assert is_writing(), "the batch was over before the kill"


def test_killed_queries_lose_and_double_nothing(
    spark_session: SparkSession, sidecar_process: SidecarProcess, tmp_path: Path
) -> None:
    """Queries that are killed twice and restarted from checkpoints have the output of one run."""
    url, events = url_of(sidecar_process), tmp_path / "events"
    killed = RestartQueries(url, events, tmp_path / "killed")
    unharmed = RestartQueries(url, events, tmp_path / "unharmed")
    killed.write_events()
    for committed in (1, 2):
        kill_in_mid_batch(killed, committed=committed)

    killed.run(spark_session)
    unharmed.run(spark_session)

    found = killed.output(spark_session)
    assert found["rows"].num_rows == FILES * ROWS
    assert found == unharmed.output(spark_session)
    SidecarFigures(sidecar_process).seconds_until_at_rest()


def installed(command: list[str]) -> None:
    """Run a command of an installation; skips the test if it fails."""
    try:
        subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S
        )
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no PySpark {OLDEST}: {error.stderr.strip()}")


@pytest.fixture(scope="module")
def python() -> Path:
    """The Python of an environment with the oldest Spark, 900 MB in the user's cache."""
    wanted = [f"pyspark=={OLDEST}", *(f"{name}=={version(name)}" for name in SAME_AS_HERE)]
    with download_cache(os.environ) as cache:
        folder = cache / f"pyspark-{OLDEST}"
        python, stamp = folder / "bin" / "python", folder / "installed"
        if not stamp.exists() or stamp.read_text().split() != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            installed([sys.executable, "-m", "venv", str(folder)])
            # Without the cache of pip, which would hold another copy of Spark.
            options = ["--disable-pip-version-check", "--no-cache-dir", "--quiet"]
            installed([str(python), "-m", "pip", "install", *options, *wanted])
            stamp.write_text("\n".join(wanted))
    return python


def test_operations_run_on_the_oldest_spark(python: Path, folder: Path) -> None:
    """Join, function and repartition give the rows and types of the newest version."""
    sidecar = configured(folder, {"things": parquet(folder, "things", THINGS, "id")})

    with sidecar.running():
        program = SparkProgram("oldest_spark_program", [url_of(sidecar)], str(python))
        result = program.output().result

    assert json.loads(json.dumps(result)) == EXPECTED
