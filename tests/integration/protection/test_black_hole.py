"""A network that swallows, cuts and delays between a sidecar under load and its database."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.fault_proxy import FaultProxy
from tests.integration.protection.asker import Asker
from tests.integration.protection.customers import put_customers
from tests.integration.protection.load import Load
from tests.integration.protection.postgres_sidecar import BACK_WITHIN_S, postgres_sidecar, started
from tests.integration.protection.session_watch import SessionWatch
from tools.processes.postgres_server import Database, PostgresServer
from tools.processes.sidecar_process import SidecarFigures
from tools.processes.until import until

HOLE_S = 30.0
CALLERS = 20
POOL = 4  # connections
TIMEOUT_MS = 500
UNCACHED = {
    "cache": {"mode": "none"},
    "batch": {"max_in_flight": POOL},
    "timeout": f"{TIMEOUT_MS}ms",
}


@dataclass(frozen=True, slots=True)
class Scene:
    """A sidecar under load, and the network to its database."""

    load: Load
    proxy: FaultProxy
    watch: SessionWatch

    async def check_recovery(self) -> None:
        """Lookups succeed soon after this moment, and no more connections are held than may be."""
        released_s = time.monotonic()
        self.proxy.release()
        answered = await self.load.first_success(released_s, within_s=BACK_WITHIN_S)
        await asyncio.to_thread(until, self._has_no_stray_session, within_s=BACK_WITHIN_S)
        seconds = answered.ended_s - released_s
        told = f"{len(self.load.answers)} lookups, {self.load.codes()}"
        print(f"{told}, back after {seconds:.3f} s")  # noqa: T201 -- a figure for whoever runs this with -s

    def _has_no_stray_session(self) -> bool:
        return self.watch.sessions() <= POOL


@pytest.fixture
async def scene(
    folder: Path, postgres_server: PostgresServer, database: Database
) -> AsyncIterator[Scene]:
    """At its end every lookup was on time and told no lie, and nobody waits for anything."""
    put_customers(database)
    async with FaultProxy(postgres_server.socket_path) as proxy:
        sidecar = postgres_sidecar(folder, proxy.dsn(database.name), {"customers": UNCACHED})
        async with started(sidecar), Asker.of(folder, timeout_ms=TIMEOUT_MS) as asker:
            load = Load(asker)
            async with load.by(CALLERS):
                await load.more_answers(10 * CALLERS)
                yield Scene(load, proxy, SessionWatch(database))
            assert (load.lies(), load.late()) == ([], [])
            await asyncio.to_thread(SidecarFigures(sidecar).seconds_until_at_rest)


async def test_black_hole_is_survived_under_load(scene: Scene) -> None:
    """It accepts and never answers for 30 s: each call ends in time, and then it is over."""
    scene.proxy.hold()
    await scene.load.first_failure(time.monotonic(), within_s=BACK_WITHIN_S)

    await asyncio.sleep(HOLE_S)  # as long as the fault lasts

    assert scene.load.codes() <= {"backend_unavailable", "timeout"}
    await scene.check_recovery()


async def test_lost_replies_are_survived_under_load(scene: Scene) -> None:
    """The server hears and works, but its replies are swallowed."""
    scene.proxy.hold_replies()

    await scene.load.more_answers(5 * CALLERS)

    await scene.check_recovery()


async def test_cut_connections_are_survived_under_load(scene: Scene) -> None:
    """All connections are reset again and again: lookups are asked once more, and succeed."""
    for _ in range(20):
        scene.proxy.cut()
        await scene.load.more_answers(CALLERS)

    await scene.check_recovery()


@pytest.mark.parametrize("delay_s", [0.05, 1.0])
async def test_slow_network_is_survived_under_load(scene: Scene, delay_s: float) -> None:
    """Each chunk takes long: lookups are slow, or end by their deadline."""
    scene.proxy.delay_s = delay_s

    await scene.load.more_answers(5 * CALLERS)

    scene.proxy.delay_s = 0.0
    await scene.check_recovery()
