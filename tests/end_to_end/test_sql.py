"""SQL functions against a real sidecar: examples of docs/how-to/sql.md, and keys that are sent."""

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark_client import Sidecar
from tests.end_to_end.sidecars import CUSTOMERS, configured, parquet, url_of
from tests.end_to_end.spark_frames import written
from tests.test_layers import ROOT
from tools.processes.sidecar_process import SidecarFigures, SidecarProcess

PAGE = ROOT / "docs" / "how-to" / "sql.md"
COUNTS = re.findall(r"^\| `(SELECT .*?)` \| (\d+) \| (\d+) \|$", PAGE.read_text(), re.MULTILINE)
WEATHER = pa.table({"airport": ["LGA"], "hour": pa.array([7], pa.int32()), "temp": [9.5]})
WAIT_S = 20.0


@pytest.fixture(scope="module")
def process(module_folder: Path) -> Iterator[SidecarProcess]:
    """A sidecar with the dimensions of the page."""
    data = ROOT / "examples" / "data"
    dimensions = {
        name: {"source": {"kind": "parquet", "path": str(data / f"{name}.parquet")}, "key": [key]}
        for name, key in {"airports": "faa", "airlines": "carrier"}.items()
    }
    dimensions["weather"] = parquet(module_folder, "weather", WEATHER, "airport,hour")
    private = {"share": "off"}  # its keys are counted as they are sent
    dimensions["customers"] = parquet(module_folder, "customers", CUSTOMERS, "id", cache=private)
    process = configured(module_folder, dimensions)
    with process.running():
        yield process


@pytest.fixture
def dims(process: SidecarProcess) -> Sidecar:
    """Its handle."""
    return Sidecar(url_of(process), connect_timeout=WAIT_S)


@pytest.fixture
def session(spark_session: SparkSession) -> SparkSession:
    """A session without registered functions."""
    return spark_session.newSession()


@pytest.mark.parametrize(("query", "repeatable", "once"), COUNTS)
def test_page_counts_keys(
    process: SidecarProcess,
    dims: Sidecar,
    session: SparkSession,
    *,
    query: str,
    repeatable: str,
    once: str,
) -> None:
    """Each query of the table sends as many keys as the page says, in both columns."""
    figures, sent = SidecarFigures(process), []
    orders = "SELECT id AS n, id DIV 2 AS id FROM range(0, 100, 1, 1)"
    session.sql(f"CREATE TEMPORARY VIEW orders AS {orders}")

    for deterministic in (True, False):
        dims.register(session, dimensions=["customers"], deterministic=deterministic)
        before = figures.lookups()
        session.sql(query).collect()
        sent.append(figures.lookups() - before)

    assert len(COUNTS) == 9
    assert sent == [float(repeatable), float(once)]


def test_only_arguments_cross_into_python(dims: Sidecar, session: SparkSession) -> None:
    """The plan has one evaluation with the key alone, though the output has other columns."""
    dims.register(session, dimensions={"customers": "name string, tier int"})
    session.range(9).selectExpr("*", "uuid() AS wide").createOrReplaceTempView("events")

    query = "SELECT *, lookup_customers(id).name, lookup_customers(id).tier FROM events"
    plan = session.sql(f"EXPLAIN {query}").collect()[0][0]

    assert re.findall(r"ArrowEvalPython \[(lookup_customers\(id#\d+L\))#\d+\],", plan) != []
    assert plan.count("ArrowEvalPython") == 1


@pytest.mark.parametrize("deterministic", [True, False])
def test_streams_are_enriched_in_sql(
    dims: Sidecar, session: SparkSession, tmp_path: Path, *, deterministic: bool
) -> None:
    """A query over a streaming view looks up, and filters by what it has found."""
    dims.register(session, dimensions=["customers"], deterministic=deterministic)
    session.range(0, 10, 1, 1).write.parquet(str(tmp_path / "events"))
    stream = session.readStream.schema("id long").parquet(str(tmp_path / "events"))
    stream.createOrReplaceTempView("events")

    query = "SELECT c.name FROM (SELECT lookup_customers(id) AS c FROM events) WHERE c.tier = 1"
    names = written(session.sql(query), tmp_path).collect()

    assert sorted(row["name"] for row in names) == ["customer 1", "customer 6"]
