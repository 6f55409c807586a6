"""Lookup joins under Spark Connect, where the driver has no Spark context."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.end_to_end.parquet_sidecar import url_of
from tests.end_to_end.sidecar_process import SidecarProcess

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 240.0


def test_same_calls_work_under_connect(sidecar_process: SidecarProcess) -> None:
    """Batch and stream are enriched, and the watermark reaches what stands behind the join."""
    environ = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_TESTING": "1",  # Spark then takes any free port for its server
    }
    program = [sys.executable, "-m", "tests.end_to_end.connect_program", url_of(sidecar_process)]

    done = subprocess.run(
        program, check=True, env=environ, cwd=ROOT, timeout=TIMEOUT_S, stdout=subprocess.PIPE
    )

    assert json.loads(done.stdout.splitlines()[-1]) == {
        "session": "pyspark.sql.connect.session",
        "tiers": [0, 1, 2, 3, 4, 0, 1],
        "windows": 9,  # the last one stays open
    }
