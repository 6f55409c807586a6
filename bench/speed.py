"""How fast a lookup join is against doing without one: workload, sidecar, rounds, tables.

Whole Spark jobs; what a single lookup waits for is `fairness`' question.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from rich.console import Console

from bench.comparison import differences
from bench.contenders import Contender, contenders
from bench.report import report_json, report_table
from bench.rounds import Timing, time_in_turn
from bench.workload import KEYS, Workload
from demo.sidecar import running_sidecar
from demo.spark_session import spark_session

FULL = (4_000_000, 1_000_000, 5)  # events, rows of the dimension, rounds
QUICK = (1_000_000, 200_000, 3)


def speed(folder: Path, console: Console, *, is_quick: bool) -> int:
    """Measure, print the tables and write them as JSON; 1 if the contenders' outputs differ."""
    events, rows, rounds = QUICK if is_quick else FULL
    workload = Workload(folder, events, rows)
    workload.write()
    console.print(f"{events:,} events, {rows:,} rows in the dimension, {rounds} rounds in turn")
    faults: list[str] = []
    results: dict[str, Any] = {"events": events, "rows": rows}
    with (
        running_sidecar(_settings(workload), folder) as sidecar,
        spark_session(folder / "spark.log") as session,
    ):
        compared = contenders(workload, sidecar.endpoint)
        for keys in KEYS:
            frame = session.read.parquet(str(workload.events_of(keys)))
            faults += differences(frame, compared)
            timings = _time(frame, compared, rounds=rounds)
            console.print(report_table(keys, timings, events=events))
            results[keys] = report_json(timings, events=events)
    (folder / "results.json").write_text(json.dumps(results, indent=2))
    for fault in faults:
        console.print(f"WRONG: {fault}", style="red")
    return 1 if faults else 0


def _time(events: DataFrame, compared: Mapping[str, Contender], *, rounds: int) -> Sequence[Timing]:
    runs = {name: partial(_run, add(events)) for name, add in compared.items()}
    return time_in_turn(runs, rounds=rounds)


def _run(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _settings(workload: Workload) -> dict[str, Any]:
    customers = {
        "source": {"kind": "parquet", "path": str(workload.dimension)},
        "key": ["id"],
        "cache": {"max_bytes": "512MiB", "ttl": "1h"},
        "batch": {"max_keys": 5000},
    }
    return {"limits": {"memory": "1GiB"}, "dimensions": {"customers": customers}}
