"""The HTTP surface as most tests want it; those that want it otherwise call `served`."""

from collections.abc import AsyncIterator

import pytest

from tests.service.http.serving import Served, served


@pytest.fixture
async def service() -> AsyncIterator[Served]:
    """A service with default limits and without tokens."""
    async with served() as running:
        yield running
