"""Waiting for an event or a timeout, and the jitter of retries."""

import asyncio
import random


async def pause(wake: asyncio.Event, seconds: float | None) -> None:
    """Return when the event is set, or after this many seconds; None: no timeout."""
    if wake.is_set():
        return  # a timeout would cost each HTTP lookup microseconds
    try:
        async with asyncio.timeout(seconds):
            await wake.wait()
    except TimeoutError:
        pass


def jitter() -> float:
    """A random number in [0, 1)."""
    return random.random()  # noqa: S311 -- no secret
