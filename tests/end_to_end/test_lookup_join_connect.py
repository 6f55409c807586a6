"""Lookup joins under Spark Connect, where the driver has no Spark context."""

from spark_client.lookup_settings import OutputMode
from tests.end_to_end.parquet_sidecar import url_of
from tests.end_to_end.spark_program import SparkProgram
from tools.processes.sidecar_process import SidecarFigures, SidecarProcess


def test_same_calls_work_under_connect(sidecar_process: SidecarProcess) -> None:
    """Batch and stream are enriched, divided or not, and the watermark gets behind the join."""
    program = SparkProgram("connect_program", [url_of(sidecar_process)])

    output = program.output()

    assert output.result == {
        "session": "pyspark.sql.connect.session",
        "tiers": {how: [0, 1, 2, 3, 4, 0, 1] for how in (*OutputMode, "divided")},
        "windows": 9,  # the last one stays open
    }
    assert "Traceback" not in output.standard_error
    SidecarFigures(sidecar_process).seconds_until_at_rest()
