"""Silent, cut and slow networks between a sidecar under load and its database."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.fault_proxy import FaultProxy
from tests.integration.protection.callers import (
    HAS_POOL,
    UNCACHED,
    UNREACHABLE,
    Callers,
    callers_of,
    put_customers,
)
from tests.integration.sidecars import postgres_sidecar, started
from tools.processes.postgres_server import Database, PostgresServer
from tools.processes.sidecar_process import SidecarFigures

CALLERS = 20
TIMEOUT_MS = 500


@dataclass(frozen=True, slots=True)
class Scene:
    """Callers of a sidecar, and the network to its database."""

    callers: Callers
    proxy: FaultProxy


@pytest.fixture
async def scene(
    folder: Path, postgres_server: PostgresServer, database: Database
) -> AsyncIterator[Scene]:
    """A sidecar under load; after the test it must recover, and no answer may be wrong."""
    put_customers(database)
    async with FaultProxy(postgres_server.socket_path) as proxy:
        sidecar = postgres_sidecar(folder, proxy.dsn(database.name), {"customers": UNCACHED})
        async with started(sidecar), callers_of(folder, timeout_ms=TIMEOUT_MS) as callers:
            async with callers.load(CALLERS):
                await callers.wait_for_answers(10 * CALLERS)
                yield Scene(callers, proxy)
                proxy.delay_s = 0.0
                proxy.release()
                await callers.wait_for_success()
                await database.wait_for(HAS_POOL)
            assert callers.faults() == []
            assert callers.codes() <= UNREACHABLE
            await asyncio.to_thread(SidecarFigures(sidecar).seconds_until_at_rest)


@pytest.mark.parametrize("fault", ["hold", "hold_replies"])
async def test_black_hole_is_survived_under_load(scene: Scene, fault: str) -> None:
    """While the network is silent in both or one direction, every lookup ends (D4)."""
    getattr(scene.proxy, fault)()
    await scene.callers.wait_for_failure()

    await scene.callers.wait_for_answers(10 * CALLERS)


@pytest.mark.parametrize("delay_s", [0.05, 1.0])
async def test_slow_network_is_survived_under_load(scene: Scene, delay_s: float) -> None:
    """While each chunk is delayed by less or more than the timeout, every lookup ends."""
    scene.proxy.delay_s = delay_s

    await scene.callers.wait_for_answers(5 * CALLERS)
