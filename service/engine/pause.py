"""Wait for an event or a timeout, and jitter for retries."""

import asyncio
import random


async def pause(wake: asyncio.Event, seconds: float | None) -> None:
    """Return when the event is set, after so many seconds at the latest; None: however long.

    Cancellation leaves no trace.
    """
    try:
        async with asyncio.timeout(seconds):
            await wake.wait()
    except TimeoutError:
        pass  # the time itself is what was waited for


def jitter() -> float:
    """A number in [0, 1), another one each time."""
    return random.random()  # noqa: S311 -- it guards nothing
