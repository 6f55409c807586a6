"""A client process that freezes or dies leaves nothing in the service, and soon."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import aiohttp
import pytest

from service.stream.timeouts import Timeouts
from tests.integration import asking_client
from tests.service.stream.streaming import Setting, Streaming, streaming, until

ROOT = Path(__file__).parents[2]
FREED_IN_S = 3.0


@pytest.mark.parametrize("end", [signal.SIGSTOP, signal.SIGKILL])
async def test_ended_client_frees_everything(end: signal.Signals) -> None:
    """A stopped one by the heartbeat, a killed one at once: query, credit, bytes and channel."""
    async with streaming(Setting(timeouts=Timeouts(heartbeat_s=0.6))) as service:
        store = service.stores["customers"]
        store.hold()
        client = await _client(service)
        await until(lambda: in_flight(service) == asking_client.KEYS)
        await store.wait_for_fetches(1)

        os.kill(client.pid, end)
        async with asyncio.timeout(FREED_IN_S):
            await service.wait_until_empty()
            await until(lambda: store.cancelled_total == len(store.batches))

        assert service.handler._parts.budget.used_bytes == 0
        if end is signal.SIGSTOP:
            client.kill()
        await client.wait()


def in_flight(service: Streaming) -> int:
    """Records that wait, over all channels."""
    return sum(channel.in_flight_records for channel in service.handler.statistics())


async def _client(service: Streaming) -> asyncio.subprocess.Process:
    connector = service.session.connector
    assert isinstance(connector, aiohttp.UnixConnector)
    endpoint = f"unix://{connector.path}"
    return await asyncio.create_subprocess_exec(
        sys.executable,
        asking_client.__file__,
        endpoint,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
