"""Spark `local-cluster` sessions, and a gate that pauses their tasks at a known row."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession

from tools.processes.until import until


def cluster_session(folder: Path, settings: Mapping[str, str], *, executors: int) -> SparkSession:
    """A session whose executors are processes with one core and 1 GiB; files lie below `folder`."""
    # Workers write below SPARK_HOME, and the folder of the package is read-only.
    home = folder / "spark"
    home.mkdir()
    for each in Path(pyspark.__path__[0]).iterdir():
        (home / each.name).symlink_to(each)
    os.environ["SPARK_HOME"] = str(home)
    builder = SparkSession.builder.master(f"local-cluster[{executors},1,1024]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.config("spark.local.dir", str(folder)).getOrCreate()


@dataclass(frozen=True, slots=True)
class BatchGate:
    """A `mapInArrow` function that blocks each partition after `rows` rows until `open`.

    The state is a file in `folder`, so that any process can open the gate.
    """

    folder: Path
    rows: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches, unchanged."""
        passed = 0
        for batch in batches:
            if passed >= self.rows:
                until((self.folder / "open").exists)
            passed += batch.num_rows
            yield batch

    def open(self) -> None:
        """Let all rows pass from now on."""
        (self.folder / "open").touch()
