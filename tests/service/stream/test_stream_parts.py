"""The parts are shared by all connections of the process."""

from dataclasses import FrozenInstanceError

import pytest

from tests.service.stream.streaming import streaming, until


async def test_connections_share_the_parts() -> None:
    """What one connection holds is what others see; nothing can be exchanged under them."""
    async with streaming() as service:
        first, second = await service.peer(), await service.peer()
        service.stores["customers"].hold()
        await first.ask(1, 7)
        parts = service.handler._parts

        await until(lambda: parts.budget.used_bytes > 0)
        first_bytes = parts.budget.used_bytes
        await second.ask(1, 8)
        await until(lambda: parts.budget.used_bytes == 2 * first_bytes)
        with pytest.raises(FrozenInstanceError):
            parts.agent = "2"  # type: ignore[misc]  # that is the point
