"""Waiting for a sign, or for a time."""

import asyncio

import pytest

from service.engine.pause import pause
from tests.service.engine.running import PATIENCE_S


async def test_sign_ends_the_pause() -> None:
    """Also one that was given before, and where no time is named; it stays as it is."""
    wake = asyncio.Event()
    wake.set()

    async with asyncio.timeout(PATIENCE_S):
        await pause(wake, None)
        await pause(wake, PATIENCE_S * 2)

    assert wake.is_set()


@pytest.mark.parametrize("seconds", [0.001, 0.0, -1.0])
async def test_time_ends_the_pause(seconds: float) -> None:
    """A time that has passed is over at once."""
    async with asyncio.timeout(PATIENCE_S):
        await pause(asyncio.Event(), seconds)


async def test_cancellation_ends_the_pause() -> None:
    """It is no end that the pause was waiting for."""
    task = asyncio.ensure_future(pause(asyncio.Event(), PATIENCE_S))
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
