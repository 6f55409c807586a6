"""Streaming queries whose driver is killed in mid-batch and started again from its checkpoint."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.end_to_end.parquet_sidecar import url_of
from tests.end_to_end.restart_queries import FILES, ROWS, RestartQueries
from tests.end_to_end.spark_program import SparkProgram
from tools.processes.sidecar_process import SidecarFigures, SidecarProcess
from tools.processes.until import until

COMMITTED_BEFORE_A_KILL = (1, 2)  # batches
START_TIMEOUT_S = 120.0  # of a driver with its JVM, on a busy machine


def kill_in_mid_batch(queries: RestartQueries, *, committed: int) -> None:
    """SIGKILL for driver and JVM when so many are committed and another one is being written."""
    arguments = (queries.url, str(queries.events), str(queries.folder), str(committed))
    program = SparkProgram("restart_program", arguments)
    strays = queries.stray_files()

    def is_writing() -> bool:
        return queries.committed_batches() >= committed and queries.stray_files() > strays

    with program.running() as driver:
        until(lambda: is_writing() or driver.poll() is not None, within_s=START_TIMEOUT_S)
    assert is_writing(), "the batch was over before the kill"


@pytest.fixture
def killed(sidecar_process: SidecarProcess, tmp_path: Path) -> RestartQueries:
    """The queries after some kills."""
    queries = RestartQueries(url_of(sidecar_process), tmp_path / "events", tmp_path / "killed")
    queries.write_events()
    for committed in COMMITTED_BEFORE_A_KILL:
        kill_in_mid_batch(queries, committed=committed)
    return queries


def test_killed_queries_lose_and_double_nothing(
    killed: RestartQueries,
    spark_session: SparkSession,
    sidecar_process: SidecarProcess,
    tmp_path: Path,
) -> None:
    """Rows and windows are those of a run without faults, and the sidecar holds nothing."""
    unharmed = RestartQueries(killed.url, killed.events, tmp_path / "unharmed")

    killed.run(spark_session)
    unharmed.run(spark_session)

    found, expected = killed.output(spark_session), unharmed.output(spark_session)
    assert found["rows"].num_rows == FILES * ROWS
    assert found == expected
    SidecarFigures(sidecar_process).seconds_until_at_rest()
