"""What callers get while there is no database, and how soon it is over."""

import asyncio
from pathlib import Path

import pytest

from tests.grace import GRACE_S
from tests.integration.protection.asker import Answered, Asker
from tests.integration.protection.customers import ROWS, put_customers
from tests.integration.protection.outage import outage
from tests.integration.protection.postgres_sidecar import BACK_WITHIN_S, postgres_sidecar, started
from tools.processes.postgres_server import Database, PostgresServer

STALE_WITHIN_S = 1.0 + GRACE_S  # from the first question on; the ttl is 200 ms
AT_ONCE_S = 2.5  # half of the time that a lookup has
TIMEOUT_MS = 500
UNREACHABLE = {"backend_unavailable", "connection_lost", "timeout"}
LONG_CACHED = {"cache": {"ttl": "1h", "negative_ttl": "1h"}}
STALE_IF_ERROR = {"cache": {"ttl": "200ms", "stale_if_error": "1h"}}
STALE_WHILE_REVALIDATE = {"cache": {"ttl": "200ms", "stale_while_revalidate": "1h"}}
ABSENT = ROWS + 1  # the first key without a row
CUSTOMER, ADA = {"name": "customer 1"}, {"name": "Ada"}
TO_ADA = "UPDATE customers SET name = 'Ada' WHERE id = 1"


@pytest.fixture(autouse=True)
def _customers(database: Database) -> None:
    put_customers(database)


async def test_missing_database_is_no_missing_row(
    folder: Path, postgres_server: PostgresServer, database: Database
) -> None:
    """Down at the start: the service lives, says so in time, and answers soon after its return."""
    sidecar = postgres_sidecar(folder, database.dsn(), {"customers": {}})
    async with outage(postgres_server), started(sidecar, until="/livez"), Asker.of(folder) as asker:
        readiness = await asyncio.to_thread(sidecar.health, "/readyz")
        check_unanswered(await asker.ask("customers", [1, ABSENT], timeout_ms=TIMEOUT_MS))

        await asyncio.to_thread(postgres_server.start)

        assert readiness.status == 503
        await asker.ask_until("customers", [1], outcome="fetched", within_s=BACK_WITHIN_S)


async def test_cached_rows_outlive_their_database(
    folder: Path, postgres_server: PostgresServer, database: Database
) -> None:
    """Rows and known absences are served from the cache; other keys fail in time, and return."""
    sidecar = postgres_sidecar(folder, database.dsn(), {"customers": LONG_CACHED})
    async with started(sidecar), Asker.of(folder) as asker:
        await asker.ask("customers", [1, ABSENT])

        async with outage(postgres_server):
            known = await asker.ask("customers", [1, ABSENT])
            check_unanswered(await asker.ask("customers", [2, ABSENT + 1], timeout_ms=TIMEOUT_MS))

        assert (known.outcomes, known.rows[0]) == (["hit", "missing"], {"name": "customer 1"})
        await asker.ask_until("customers", [2], outcome="fetched", within_s=BACK_WITHIN_S)


async def test_stale_rows_stand_in_for_errors(
    folder: Path, postgres_server: PostgresServer, database: Database
) -> None:
    """Beyond their ttl they are served with their age while there is nothing else, no longer."""
    sidecar = postgres_sidecar(folder, database.dsn(), {"customers": STALE_IF_ERROR})
    async with started(sidecar), Asker.of(folder) as asker:
        first = await asker.ask("customers", [1])
        database.execute(TO_ADA)

        async with outage(postgres_server):
            stale = await asker.ask_until(
                "customers", [1], outcome="stale", within_s=STALE_WITHIN_S
            )
            check_unanswered(await asker.ask("customers", [2], timeout_ms=TIMEOUT_MS))

        fresh = await asker.ask_until("customers", [1], outcome="fetched", within_s=BACK_WITHIN_S)
        assert (first.rows, stale.rows, fresh.rows) == ([CUSTOMER], [CUSTOMER], [ADA])
        check_age(stale, read=first)


async def test_stale_rows_are_answered_at_once(folder: Path, database: Database) -> None:
    """While a row is read anew its callers get the old one; the next ones get the new one."""
    sidecar = postgres_sidecar(folder, database.dsn(), {"customers": STALE_WHILE_REVALIDATE})
    async with started(sidecar), Asker.of(folder) as asker:
        first = await asker.ask("customers", [1])
        database.execute(TO_ADA)

        with database.locked("customers"):
            stale = await asker.ask_until(
                "customers", [1], outcome="stale", within_s=STALE_WITHIN_S
            )

        fresh = await asker.ask_until("customers", [1], outcome="hit", within_s=BACK_WITHIN_S)
        assert (first.rows, stale.rows, fresh.rows) == ([CUSTOMER], [CUSTOMER], [ADA])
        assert stale.seconds < AT_ONCE_S
        check_age(stale, read=first)


def check_unanswered(answered: Answered) -> None:
    """In time, and nothing but that the database cannot be asked."""
    assert answered.seconds <= TIMEOUT_MS / 1000 + GRACE_S
    assert set(answered.outcomes) <= {"error", "timeout"}
    assert answered.codes
    assert set(answered.codes) <= UNREACHABLE


def check_age(stale: Answered, *, read: Answered) -> None:
    """The age is the time since the row was read, as seen from here."""
    (age_ms,) = stale.ages_ms
    assert (stale.asked_s - read.ended_s) * 1000 - 1 <= age_ms
    assert age_ms <= (stale.ended_s - read.asked_s) * 1000 + 1
