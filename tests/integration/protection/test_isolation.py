"""Locked tables and rejected keys fail only the lookups that need them."""

import asyncio
from pathlib import Path

from tests.integration.protection.callers import (
    callers_of,
    put_customers,
)
from tests.integration.sidecars import postgres_sidecar, started
from tools.processes.postgres_server import IS_BLOCKED, Database
from tools.processes.sidecar_process import SidecarFigures

QUICK_MS = 5_000  # shorter than the wait for the locked table
SLOW_MS = 6_000
CALLERS = 100
QUICK_LOOKUPS = 20
UNCACHED = {"cache": {"mode": "none"}}
TABLES = ("customers", "orders")


async def test_locked_table_hurts_only_its_dimension(folder: Path, database: Database) -> None:
    """While lookups in a locked table wait for their deadline, another table answers."""
    for table in TABLES:
        put_customers(database, table=table)
    sidecar = postgres_sidecar(folder, database.dsn(), dict.fromkeys(TABLES, UNCACHED))
    async with started(sidecar), callers_of(folder, timeout_ms=QUICK_MS) as callers:
        with database.locked("orders"):
            slow = [
                asyncio.ensure_future(callers.look_up("orders", [key], timeout_ms=SLOW_MS))
                for key in range(1, CALLERS + 1)
            ]
            await database.wait_for(IS_BLOCKED)
            keys = range(1, QUICK_LOOKUPS + 1)
            quick = [await callers.look_up("customers", [key]) for key in keys]
            were_waiting = not any(task.done() for task in slow)
            ended = await asyncio.gather(*slow)

        await callers.look_up_until("fetched", "orders", 1)
        assert were_waiting
        assert {outcome for answer in quick for outcome in answer.outcomes} == {"fetched"}
        assert {outcome for answer in ended for outcome in answer.outcomes} <= {"timeout", "error"}
        assert [fault for answer in (*quick, *ended) for fault in answer.faults()] == []
        await asyncio.to_thread(SidecarFigures(sidecar).seconds_until_at_rest)
