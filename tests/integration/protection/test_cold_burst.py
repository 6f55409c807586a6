"""Two thousand callers at once become few queries, and one for a single key."""

from pathlib import Path

import pytest

from tests.integration.postgres_server import Database, PostgresServer
from tests.integration.protection.burst import Burst
from tests.integration.protection.postgres_sidecar import postgres_sidecar
from tests.integration.protection.query_log import QueryLog

REQUESTS = 2_000
MAX_KEYS = 500  # of one query, by default
SLACK = 10  # queries: 8 may be at the database before there is anything to gather
TABLE = f"""CREATE TABLE customers AS
    SELECT number AS id, 'customer ' || number AS name FROM generate_series(1, {REQUESTS}) number"""


@pytest.fixture
def query_log(postgres_server: PostgresServer, database: Database) -> QueryLog:
    """What is asked of a table with a row for each caller."""
    database.execute(TABLE, "ALTER TABLE customers ADD PRIMARY KEY (id)", "ANALYZE customers")
    return QueryLog.of(postgres_server, database)


@pytest.mark.parametrize("connections", [REQUESTS, 256])
async def test_burst_becomes_few_queries(
    folder: Path, database: Database, query_log: QueryLog, connections: int
) -> None:
    """2,000 requests for as many cold keys make at most 2,000 / max_keys + 10 queries."""
    with postgres_sidecar(folder, database.dsn(), {"customers": {}}).running():
        async with Burst.connected(folder / "sidelook.sock", connections) as burst:
            answers = await burst.ask("customers", range(1, REQUESTS + 1))

    sizes = query_log.sizes("customers")
    print(f"{connections} connections: {len(sizes)} queries of {sizes} keys")
    names = [answer["rows"][0]["name"] for answer in answers]
    assert names == [f"customer {number}" for number in range(1, REQUESTS + 1)]
    assert sum(sizes) == REQUESTS
    assert len(sizes) <= REQUESTS / MAX_KEYS + SLACK


async def test_one_cold_key_is_asked_once(
    folder: Path, database: Database, query_log: QueryLog
) -> None:
    """2,000 requests for the same cold key make one query."""
    with postgres_sidecar(folder, database.dsn(), {"customers": {}}).running():
        async with Burst.connected(folder / "sidelook.sock", REQUESTS) as burst:
            answers = await burst.ask("customers", [7] * REQUESTS)

    assert {answer["rows"][0]["name"] for answer in answers} == {"customer 7"}
    assert query_log.sizes("customers") == [1]
