"""A Spark session in `local-cluster`, whose executors are processes of their own.

For programs that tests start; what they run, and with which settings, is theirs.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession


def cluster_session(folder: Path, settings: Mapping[str, str], *, executors: int) -> SparkSession:
    """Each executor has one core and 1 GiB; files lie below `folder`."""
    # Workers keep their files below Spark's own folder, which is not ours to write into.
    home = folder / "spark"
    home.mkdir()
    for each in Path(pyspark.__path__[0]).iterdir():
        (home / each.name).symlink_to(each)
    os.environ["SPARK_HOME"] = str(home)
    builder = SparkSession.builder.master(f"local-cluster[{executors},1,1024]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.config("spark.local.dir", str(folder)).getOrCreate()
