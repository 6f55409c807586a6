"""A client process that freezes or dies leaves nothing in the service, and soon."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import aiohttp
import pytest

from service.stream.connection import Timeouts
from tests.grace import GRACE_S
from tests.integration import asking_client
from tests.service.stream.streaming import Setting, Streaming, streaming, until

ROOT = Path(__file__).parents[2]
HEARTBEAT_S = 1.0
FREED_IN_S = 1.5 * HEARTBEAT_S + GRACE_S  # a ping is waited for half as long


@pytest.mark.parametrize("end", [signal.SIGSTOP, signal.SIGKILL])
async def test_ended_client_frees_everything(end: signal.Signals) -> None:
    """A stopped one by the heartbeat, a killed one at once: query, credit, bytes and channel."""
    client = await _client()  # before the service, whose time is short
    async with streaming(Setting(timeouts=Timeouts(heartbeat_s=HEARTBEAT_S))) as service:
        store = service.stores["customers"]
        store.hold()
        await _tell_endpoint(client, service)
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
    return sum(channel.in_flight_records for channel in service.handler.registry.statistics())


async def _client() -> asyncio.subprocess.Process:
    client = await asyncio.create_subprocess_exec(
        sys.executable,
        asking_client.__file__,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert client.stdout is not None
    assert await client.stdout.readline() == b"ready\n"
    return client


async def _tell_endpoint(client: asyncio.subprocess.Process, service: Streaming) -> None:
    connector = service.session.connector
    assert isinstance(connector, aiohttp.UnixConnector)
    assert client.stdin is not None
    client.stdin.write(f"unix://{connector.path}\n".encode())
    await client.stdin.drain()
