"""Lookup joins with executors in processes of their own: two of them, beside one sidecar."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.end_to_end.parquet_sidecar import url_of
from tests.end_to_end.spark_program import SparkProgram
from tools.processes.sidecar_process import SidecarFigures, SidecarProcess
from tools.processes.spark_cluster import BatchGate
from tools.processes.until import until

START_TIMEOUT_S = 120.0  # of a master, two workers and two executors, each a JVM


def test_executors_share_a_sidecar(sidecar_process: SidecarProcess, tmp_path: Path) -> None:
    """Over connections of their own; a failed task and a lost executor change no row."""
    figures = SidecarFigures(sidecar_process)
    program = SparkProgram("cluster_program", (url_of(sidecar_process), str(tmp_path)))

    with ThreadPoolExecutor() as programs:
        output = programs.submit(program.output)
        until(lambda: figures.channels() == 2 or output.done(), within_s=START_TIMEOUT_S)
        channels = sidecar_process.get("/v1/channels").json()["channels"]
        BatchGate(tmp_path, rows=0).open()

    assert output.result().result == []
    assert len({channel["connection"] for channel in channels}) == 2
    origins = [channel["origin"] for channel in channels]
    assert sorted(re.findall(r"partition \d", " ".join(origins))) == ["partition 0", "partition 1"]
    assert {"fail", "lose_executor"} <= {path.name for path in tmp_path.iterdir()}
    figures.seconds_until_at_rest()
