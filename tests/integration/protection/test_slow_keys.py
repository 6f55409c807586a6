"""A table that nobody can read at the moment hurts nobody but who asks for it."""

import asyncio
from pathlib import Path

from tests.grace import GRACE_S
from tests.integration.protection.asker import Answered, Asker
from tests.integration.protection.customers import lies, put_customers
from tests.integration.protection.postgres_sidecar import BACK_WITHIN_S, postgres_sidecar, started
from tools.processes.postgres_server import IS_BLOCKED, Database
from tools.processes.sidecar_process import SidecarFigures

QUICK_MS = 5_000  # more than a lookup takes, less than those wait
SLOW_MS = 6_000
CALLERS = 100
QUICK_LOOKUPS = 20  # one after the other, all of them while those wait
UNCACHED = {"cache": {"mode": "none"}}
TABLES = ("customers", "orders")


async def test_locked_table_hurts_only_its_dimension(folder: Path, database: Database) -> None:
    """Lookups in a locked table wait for their deadline; meanwhile another table answers."""
    for table in TABLES:
        put_customers(database, table=table)
    sidecar = postgres_sidecar(folder, database.dsn(), dict.fromkeys(TABLES, UNCACHED))
    async with started(sidecar), Asker.of(folder, timeout_ms=QUICK_MS) as asker:
        with database.locked("orders"):
            async with asyncio.TaskGroup() as tasks:
                slow = [
                    tasks.create_task(asker.ask("orders", [key], timeout_ms=SLOW_MS))
                    for key in range(1, CALLERS + 1)
                ]
                await database.wait_for(IS_BLOCKED)
                quick = [await asker.ask("customers", [key]) for key in range(1, QUICK_LOOKUPS + 1)]
                were_waiting = not any(task.done() for task in slow)

        await asker.ask_until("orders", [1], outcome="fetched", within_s=BACK_WITHIN_S)
        check(quick, [task.result() for task in slow])
        assert were_waiting
        await asyncio.to_thread(SidecarFigures(sidecar).seconds_until_at_rest)


def check(quick: list[Answered], slow: list[Answered]) -> None:
    """Those had their rows at once, these the end of their time, and nobody a lie."""
    assert {answered.outcome for answered in quick} == {"fetched"}
    assert [lie for answered in (*quick, *slow) for lie in lies(answered)] == []
    assert {answered.outcome for answered in slow} <= {"timeout", "error"}
    assert max(answered.seconds for answered in slow) <= SLOW_MS / 1000 + GRACE_S
