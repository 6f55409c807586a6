"""Late-arriving dimension rows: `wait_for_dimension` through Spark, sidecar and PostgreSQL."""

import datetime as dt
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_client import Sidecar
from tests.end_to_end.sidecars import configured, postgres, url_of
from tools.processes.postgres_server import Database
from tools.processes.sidecar_process import SidecarFigures, SidecarProcess, clean_environ
from tools.processes.until import until

WAIT = "10m"  # longer than the job: a lookup that waits to the end fails the test
TIMEOUT_S = 120.0  # of the client
FOLLOWED = ("customers", "tariffs")
AHEAD = dt.timedelta(hours=1)  # no heartbeat reaches this event time before the wait is over
SOON = dt.timedelta(seconds=10)  # a heartbeat does


@dataclass(frozen=True, slots=True)
class World:
    """A database and a running sidecar."""

    database: Database
    sidecar: SidecarProcess

    def insert_during_lookups(self, statement: str, records: int) -> None:
        """Execute the statement when this many records wait in the sidecar."""
        figures = SidecarFigures(self.sidecar)
        until(lambda: figures.levels()["sidelook_in_flight_records"] == records)
        self.database.execute(statement)

    def has_watermark(self, dimension: str) -> bool:
        """Whether the feed follows the table: later inserts are reported."""
        description = self.sidecar.get(f"/v1/dimensions/{dimension}").json()
        return description["freshness"]["feed"]["watermark_ms"] is not None


@pytest.fixture(scope="module")
def world(database: Database, module_folder: Path) -> Iterator[World]:
    """Empty tables with the triggers that `gen-triggers` prints, and the sidecar."""
    database.execute(
        "CREATE TABLE customers (id int PRIMARY KEY, name text)",
        "CREATE TABLE tariffs (id int, since timestamptz, tariff text, PRIMARY KEY (id, since))",
    )
    waiting = {"timeout": "15m", "refresh": {"listen": {}}, "wait_for_dimension": WAIT}
    since: dict[str, object] = {"versions": {"valid_from": "since"}}
    dimensions = {
        "customers": postgres(database.dsn(), "public.customers", **waiting),
        "tariffs": postgres(database.dsn(), "public.tariffs", **waiting, **since),
    }
    sidecar = configured(module_folder, dimensions)
    for name in FOLLOWED:
        command = (sys.executable, "-m", "service", "gen-triggers", name, *sidecar.command[-2:])
        script = subprocess.run(command, env=clean_environ(), check=True, capture_output=True)
        database.execute(script.stdout.decode())
    world = World(database, sidecar)
    with sidecar.running():
        until(lambda: all(map(world.has_watermark, FOLLOWED)))
        yield world


def now() -> dt.datetime:
    """The event time of a fact."""
    return dt.datetime.now(dt.UTC)


def facts(session: SparkSession, at: dt.datetime, *ids: int) -> DataFrame:
    """Two facts of each customer, in one partition."""
    rows = [(number, at) for number in ids * 2]
    return session.createDataFrame(rows, "id int, at timestamp").coalesce(1)


def enriched(world: World, records: DataFrame, dimension: str, **options: Any) -> list[Any]:  # noqa: ANN401
    """The key, the looked up column and the outcome of each record."""
    sidecar = Sidecar(url_of(world.sidecar))
    join = sidecar.lookup_join(dimension, on="id", timeout=TIMEOUT_S, status_column="_s", **options)
    columns = ["id", *options["columns"], "_s.outcome"]
    return [tuple(row) for row in records.transform(join).select(*columns).collect()]


def test_fact_waits_for_its_customer(spark_session: SparkSession, world: World) -> None:
    """A fact that precedes its customer gets the row when the insertion is reported."""
    records = facts(spark_session, now() + AHEAD, 1, 2)
    insert = "INSERT INTO customers VALUES (1, 'Ada'), (2, 'Bert')"

    with ThreadPoolExecutor(1) as writer:
        inserted = writer.submit(world.insert_during_lookups, insert, 2)
        rows = enriched(world, records, "customers", event_time="at", columns=["name"])
        inserted.result()

    assert rows == [(1, "Ada", "fetched"), (2, "Bert", "fetched")] * 2


def test_fact_waits_for_its_version(spark_session: SparkSession, world: World) -> None:
    """A cached version is not used until all changes before the fact's time are reported."""
    world.database.execute("INSERT INTO tariffs VALUES (1, '2013-01-01', 'old')")
    before = facts(spark_session, now() - AHEAD, 1)
    old = enriched(world, before, "tariffs", as_of="at", columns=["tariff"])
    at = now() + SOON
    insert = f"INSERT INTO tariffs VALUES (1, '{at - SOON / 10}', 'new')"

    with ThreadPoolExecutor(1) as writer:
        inserted = writer.submit(world.insert_during_lookups, insert, 1)
        records = facts(spark_session, at, 1)
        new = enriched(world, records, "tariffs", as_of="at", columns=["tariff"])
        inserted.result()

    assert [[row[1] for row in rows] for rows in (old, new)] == [["old"] * 2, ["new"] * 2]
