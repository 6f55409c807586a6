"""Fixtures of the HTTP tests: one service for all tests of a file."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.service.http.serving import Served, served


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def _shared() -> AsyncIterator[Served]:
    async with served() as service:
        await service.described()
        yield service


@pytest_asyncio.fixture(loop_scope="module")
async def service(_shared: Served) -> AsyncIterator[Served]:
    """A service with default limits, without tokens, and with an empty cache."""
    yield _shared
    _shared.reset()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tests of the shared service run on its loop."""
    if "service" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.asyncio(loop_scope="module"), append=False)
