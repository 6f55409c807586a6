"""A database that crashes and comes back, again and again, under load."""

import asyncio
import time
from pathlib import Path

from tests.grace import GRACE_S
from tests.integration.protection.asker import Asker
from tests.integration.protection.customers import put_customers
from tests.integration.protection.load import Load
from tests.integration.protection.outage import outage, restarted
from tests.integration.protection.postgres_sidecar import BACK_WITHIN_S, postgres_sidecar
from tests.integration.protection.session_watch import SessionWatch
from tools.processes.postgres_server import Database, PostgresServer
from tools.processes.until import until

RESTARTS = 10
CALLERS = 20
POOL = 4  # connections
TIMEOUT_MS = 1_000
UNCACHED = {"cache": {"mode": "none"}, "batch": {"max_in_flight": POOL}}


async def test_restarts_are_survived_under_load(
    folder: Path, postgres_server: PostgresServer, database: Database
) -> None:
    """Each time lookups succeed soon after its return; none is late, none is wrong."""
    put_customers(database)
    watch = SessionWatch(database)
    with postgres_sidecar(folder, database.dsn(), {"customers": UNCACHED}).running():
        async with Asker.of(folder, timeout_ms=TIMEOUT_MS) as asker, watch.watching():
            load = Load(asker)
            async with load.by(CALLERS):
                seconds = [
                    await recovery_s(load, postgres_server, database, is_felt=number % 2 == 1)
                    for number in range(RESTARTS)
                ]
                # At the end, still under load: the server notices only after a while that the
                # client of a session is gone, and its successor is there by then.
                await asyncio.to_thread(until, lambda: watch.sessions() <= POOL, within_s=GRACE_S)

    told = f"{len(load.answers)} lookups, {load.codes()}"
    print(f"{told}, back after {max(seconds):.2f} s, {watch.most} sessions")  # noqa: T201 -- a figure for whoever runs this with -s
    assert (load.lies(), load.late()) == ([], [])
    assert watch.looks > RESTARTS
    assert watch.most_in_transaction == 0


async def recovery_s(
    load: Load, server: PostgresServer, database: Database, *, is_felt: bool
) -> float:
    """Crash the server and start it; the seconds from its return to the first success.

    A crash that is felt lasts until a lookup has failed; another may be bridged by retries.
    """
    await load.more_answers(200)
    async with outage(server):
        if is_felt:
            await load.first_failure(time.monotonic(), within_s=TIMEOUT_MS / 1000 + GRACE_S)
        back_s = await restarted(server, database)
    answered = await load.first_success(back_s, within_s=BACK_WITHIN_S)
    return answered.ended_s - back_s
