"""Outages of the database, from the callers' view: errors, cached rows and recovery."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.integration.protection.callers import (
    ABSENT,
    HAS_POOL,
    UNCACHED,
    UNREACHABLE,
    Answer,
    callers_of,
    put_customers,
)
from tests.integration.sidecars import postgres_sidecar, started
from tools.processes.postgres_server import Database, PostgresServer

RESTARTS = 10
TABLES = ("customers", "orders")
CALLERS = 20
TIMEOUT_MS = 500
CUSTOMER, ADA = {"name": "customer 1"}, {"name": "Ada"}


@pytest.fixture(autouse=True)
def _customers(database: Database) -> None:
    put_customers(database)


@asynccontextmanager
async def outage(server: PostgresServer) -> AsyncIterator[None]:
    """The server has crashed until the end of the block."""
    await asyncio.to_thread(server.crash)
    try:
        yield
    finally:
        await asyncio.to_thread(server.start)


def check_unanswered(answer: Answer) -> None:
    """Every key failed because the database cannot be reached; none is missing."""
    assert set(answer.outcomes) <= {"error", "timeout"}
    assert answer.codes
    assert answer.codes <= UNREACHABLE


async def test_missing_database_is_no_missing_row(
    folder: Path, postgres_server: PostgresServer, database: Database
) -> None:
    """A sidecar starts without its database, is live but not ready, and recovers (D1, G3)."""
    sidecar = postgres_sidecar(folder, database.dsn(), {"customers": {}})
    async with (
        outage(postgres_server),
        started(sidecar, until="/livez"),
        callers_of(folder) as callers,
    ):
        readiness = await asyncio.to_thread(sidecar.health, "/readyz")
        check_unanswered(await callers.look_up("customers", [1, ABSENT], timeout_ms=TIMEOUT_MS))

        await asyncio.to_thread(postgres_server.start)

        assert readiness.status == 503
        await callers.look_up_until("fetched", "customers", 1)


async def test_restarts_are_survived_under_load(
    folder: Path, postgres_server: PostgresServer, database: Database
) -> None:
    """After each crash of the server, lookups succeed again, and no row is wrong (D2).

    Two dimensions share the connections, which all break.
    """
    put_customers(database, table="orders")
    sidecar = postgres_sidecar(folder, database.dsn(), dict.fromkeys(TABLES, UNCACHED))
    async with (
        started(sidecar),
        callers_of(folder, timeout_ms=1_000) as callers,
        callers.load(CALLERS, TABLES),
    ):
        for number in range(RESTARTS):
            await callers.wait_for_answers(200)
            async with outage(postgres_server):
                if number % 2:  # every second crash is too long for retries
                    await callers.wait_for_failure()
            await callers.wait_for_each(TABLES, 1)
        # Under load: the server notices the end of a client only after a while.
        await database.wait_for(HAS_POOL)

    assert callers.faults() == []
    assert callers.codes() <= UNREACHABLE
