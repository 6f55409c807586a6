"""Facts that are quicker than their dimension, through Spark, the sidecar and PostgreSQL."""

import datetime as dt
import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_client import Sidecar
from tests.end_to_end.parquet_sidecar import url_of
from tests.end_to_end.quick_facts import TIMEOUT_S, WAIT_S, QuickFacts, quick_facts
from tools.processes.postgres_server import running_postgres

AHEAD = dt.timedelta(hours=1)  # no heartbeat gets there before the wait is over
SOON = dt.timedelta(seconds=10)  # a heartbeat does


@pytest.fixture(scope="module")
def world() -> Iterator[QuickFacts]:
    """A server, and the sidecar that follows it."""
    folder = Path(tempfile.mkdtemp(prefix="sidelook-"))  # short: sockets have short paths
    with running_postgres() as server, quick_facts(server.new_database(), folder) as running:
        yield running
    shutil.rmtree(folder, ignore_errors=True)


def now() -> dt.datetime:
    """What a fact takes for its time."""
    return dt.datetime.now(dt.UTC)


def facts(session: SparkSession, at: dt.datetime, *ids: int) -> DataFrame:
    """Two of each customer, in one partition."""
    rows = [(number, at) for number in ids * 2]
    return session.createDataFrame(rows, "id int, at timestamp").coalesce(1)


def enriched(world: QuickFacts, records: DataFrame, dimension: str, **options: Any) -> list[Any]:  # noqa: ANN401
    """What each record gets, and how its lookup ended."""
    sidecar = Sidecar(url_of(world.sidecar))
    join = sidecar.lookup_join(dimension, on="id", timeout=TIMEOUT_S, status_column="_s", **options)
    return [
        tuple(row) for row in records.transform(join).drop("at", "since", "_s.age_ms").collect()
    ]


def test_fact_waits_for_its_customer(spark_session: SparkSession, world: QuickFacts) -> None:
    """It has the row as soon as that is told, long before the wait is over."""
    records = facts(spark_session, now() + AHEAD, 1, 2)
    insert = "INSERT INTO customers VALUES (1, 'Ada'), (2, 'Bert')"

    with ThreadPoolExecutor(1) as writer:
        inserted_at_s = writer.submit(world.insert_once_asked, insert, records=2)
        rows = enriched(world, records, "customers", event_time="at", columns=["name"])
    took_s = time.monotonic() - inserted_at_s.result()

    assert [(number, name) for number, name, _ in rows] == [(1, "Ada"), (2, "Bert")] * 2
    assert {status.outcome for *_, status in rows} == {"fetched"}
    assert took_s < WAIT_S / 2


@pytest.mark.parametrize(
    ("dimension", "options"), [("hasty", {"event_time": "at"}), ("customers", {})]
)
def test_fact_misses_its_customer_without_a_wait(
    spark_session: SparkSession, world: QuickFacts, dimension: str, options: dict[str, str]
) -> None:
    """Where the dimension does not wait, or the records have no time that it could wait for."""
    records = facts(spark_session, now() + AHEAD, 3)
    began_s = time.monotonic()

    rows = enriched(world, records, dimension, columns=["name"], **options)

    assert [(number, name) for number, name, _ in rows] == [(3, None)] * 2
    assert {status.outcome for *_, status in rows} == {"missing"}
    assert time.monotonic() - began_s < WAIT_S / 2


def test_fact_waits_for_its_version(spark_session: SparkSession, world: QuickFacts) -> None:
    """A cached version is not believed until all changes before the fact's time are told."""
    world.database.execute("INSERT INTO tariffs VALUES (1, '2013-01-01', 'old')")
    before = facts(spark_session, now() - AHEAD, 1)
    old = enriched(world, before, "tariffs", as_of="at", columns=["tariff"])
    at = now() + SOON
    insert = f"INSERT INTO tariffs VALUES (1, '{at - SOON / 10}', 'new')"

    with ThreadPoolExecutor(1) as writer:
        inserted_at_s = writer.submit(world.insert_once_asked, insert, records=1)
        records = facts(spark_session, at, 1)
        new = enriched(world, records, "tariffs", as_of="at", columns=["tariff"])
    took_s = time.monotonic() - inserted_at_s.result()

    assert [[row[1] for row in rows] for rows in (old, new)] == [["old"] * 2, ["new"] * 2]
    assert took_s < WAIT_S / 2
