"""Waiting for whatever comes first: a sign, or a time.

What there is to do then is the caller's to find out, and so is when the sign is taken down.
"""

import asyncio


async def pause(wake: asyncio.Event, seconds: float | None) -> None:
    """Return when the event is set, after so many seconds at the latest; None: however long.

    Cancellation leaves no trace.
    """
    try:
        async with asyncio.timeout(seconds):
            await wake.wait()
    except TimeoutError:
        pass  # the time itself is what was waited for
