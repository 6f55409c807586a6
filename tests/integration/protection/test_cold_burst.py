"""Two thousand callers at once become few queries, and one for a single key."""

import asyncio
from pathlib import Path

import pytest

from tests.integration.protection.asker import Asker
from tests.integration.protection.burst import Burst
from tests.integration.protection.postgres_sidecar import postgres_sidecar
from tests.integration.protection.query_log import QueryLog
from tools.processes.postgres_server import Database, PostgresServer

REQUESTS = 2_000
MAX_KEYS = 500  # of one query, by default
SLACK = 10  # queries: 8 may be at the database before there is anything to gather
KEYS = range(1, REQUESTS + 1)
PATIENT = {"timeout": "20s"}  # also of a query: one that the server ends is asked again
TABLE = f"""CREATE TABLE customers AS
    SELECT number AS id, 'customer ' || number AS name FROM generate_series(1, {REQUESTS}) number"""


@pytest.fixture
def query_log(postgres_server: PostgresServer, database: Database) -> QueryLog:
    """What is asked of a table with a row for each caller."""
    database.execute(TABLE, "ALTER TABLE customers ADD PRIMARY KEY (id)", "ANALYZE customers")
    return QueryLog.of(postgres_server, database)


async def test_burst_becomes_few_queries(
    folder: Path, database: Database, query_log: QueryLog
) -> None:
    """2,000 requests for as many cold keys make at most 2,000 / max_keys + 10 queries."""
    with postgres_sidecar(folder, database.dsn(), {"customers": PATIENT}).running():
        async with Burst.connected(folder / "sidelook.sock", REQUESTS) as burst:
            answers = await burst.ask("customers", KEYS)

    names = [answer["rows"][0]["name"] for answer in answers]
    assert names == [f"customer {key}" for key in KEYS]
    check(query_log.sizes("customers"))


async def test_burst_of_new_callers_becomes_few(
    folder: Path, database: Database, query_log: QueryLog
) -> None:
    """The same when each of them has to connect first: none is lost, few queries are made."""
    with postgres_sidecar(folder, database.dsn(), {"customers": PATIENT}).running():
        async with Asker.of(folder, timeout_ms=20_000) as asker:
            answers = await asyncio.gather(*(asker.ask("customers", [key]) for key in KEYS))

    assert [answer.rows for answer in answers] == [[{"name": f"customer {key}"}] for key in KEYS]
    check(query_log.sizes("customers"))


async def test_one_cold_key_is_asked_once(
    folder: Path, database: Database, query_log: QueryLog
) -> None:
    """2,000 requests for the same cold key make one query."""
    with postgres_sidecar(folder, database.dsn(), {"customers": PATIENT}).running():
        async with Burst.connected(folder / "sidelook.sock", REQUESTS) as burst:
            answers = await burst.ask("customers", [7] * REQUESTS)

    assert {answer["rows"][0]["name"] for answer in answers} == {"customer 7"}
    assert query_log.sizes("customers") == [1]


def check(sizes: list[int]) -> None:
    """Each key was asked for once, in few queries."""
    print(f"{len(sizes)} queries: {sizes}")  # noqa: T201 -- a figure for whoever runs this with -s
    assert sum(sizes) == REQUESTS
    assert len(sizes) <= REQUESTS / MAX_KEYS + SLACK
