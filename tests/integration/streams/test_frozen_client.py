"""Client processes that freeze or die during a lookup (F1, B20)."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import aiohttp
import pytest

from service.stream.connection import Timeouts
from tests.integration.streams import asking_client
from tests.service.stream.streaming import Setting, Streaming, streaming, until

ROOT = Path(__file__).parents[3]
HEARTBEAT_S = 1.0


@pytest.mark.parametrize("end", [signal.SIGSTOP, signal.SIGKILL])
async def test_ended_client_frees_everything(end: signal.Signals) -> None:
    """A frozen or killed client frees its query, credits, bytes and channel."""
    client = await _client()  # before the service, since its start is slow
    async with streaming(Setting(timeouts=Timeouts(heartbeat_s=HEARTBEAT_S))) as service:
        backend = service.stores["customers"]
        backend.hold()
        await _send_address(client, service)
        await until(lambda: _in_flight(service) == asking_client.KEYS)
        await backend.wait_for_fetches(1)

        os.kill(client.pid, end)
        await service.wait_until_empty()
        await until(lambda: backend.cancelled_total == len(backend.batches))

        assert service.used_bytes == 0
        if end is signal.SIGSTOP:
            client.kill()
        await client.wait()


def _in_flight(service: Streaming) -> int:
    """Records in flight of all channels."""
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


async def _send_address(client: asyncio.subprocess.Process, service: Streaming) -> None:
    connector = service.session.connector
    assert isinstance(connector, aiohttp.UnixConnector)
    assert client.stdin is not None
    client.stdin.write(f"unix://{connector.path}\n".encode())
    await client.stdin.drain()
