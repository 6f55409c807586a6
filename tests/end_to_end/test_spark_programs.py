"""Drivers in processes of their own: Connect, executors and restarts."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import SparkSession

from tests.end_to_end.restart_queries import FILES, ROWS, RestartQueries
from tests.end_to_end.sidecars import url_of
from tests.end_to_end.spark_cluster import BatchGate
from tests.end_to_end.spark_program import SparkProgram
from tools.processes.sidecar_process import SidecarFigures, SidecarProcess
from tools.processes.until import until

START_TIMEOUT_S = 120.0  # of a driver, or of a cluster of five JVMs


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
