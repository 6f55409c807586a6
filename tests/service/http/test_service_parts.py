"""The parts can be handed to several listeners, which then see the same service."""

from dataclasses import FrozenInstanceError

import pytest

from tests.service.http.serving import Served


async def test_listeners_share_the_parts(service: Served) -> None:
    """What was fetched over one listener is a hit over another."""
    await service.lookup('{"keys": [1]}')

    async with service.tcp.get("/v1/dimensions/customers/rows/1") as response:
        assert response.headers["Sidelook-Outcome"] == "hit"


async def test_parts_do_not_change(service: Served) -> None:
    """Nothing can be exchanged under a running listener."""
    with pytest.raises(FrozenInstanceError):
        service.parts.version = "2"  # type: ignore[misc]  # that is the point
