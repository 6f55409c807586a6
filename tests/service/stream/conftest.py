"""Stream tests run in virtual time, and most of them on one service for all tests of a file."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest_asyncio

from tests.service.stream.streaming import Peer, Streaming, serving
from tools.virtual_time import LOOP_FACTORIES


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop of every test in this folder: service, backends and peers share it."""
    return LOOP_FACTORIES


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def _shared() -> AsyncIterator[Streaming]:
    async with serving() as service:
        yield service


@pytest_asyncio.fixture(loop_scope="module")
async def service(_shared: Streaming) -> AsyncIterator[Streaming]:
    """A service with the dimensions `customers`, `blobs` and `orders`, in its initial state."""
    yield _shared
    await _shared.reset()


@pytest_asyncio.fixture(loop_scope="module")
async def peer(service: Streaming) -> Peer:
    """A peer with channel 1 open to `customers`."""
    return await service.peer()
