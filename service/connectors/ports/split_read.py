"""Split read that outlives the call that waits for it."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

WAIT_S = 1.0  # as long as a reader may wait before it tells that it is alive

Result = TypeVar("Result")


class PendingRead(Generic[Result]):
    """At most one read at a time."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Result] | None = None

    @property
    def is_begun(self) -> bool:
        """Whether a read is under way, or has ended and nobody has taken what it brought."""
        return self._task is not None

    def begin(self, reading: Coroutine[Any, Any, Result]) -> None:
        """Begin a read; the former one was taken."""
        assert self._task is None
        self._task = asyncio.create_task(reading)

    async def take(self) -> Result | None:
        """What the read brought, once; None while it is under way after a second.

        Raises what the read has raised. Cancellation leaves the read to the next call.
        """
        assert self._task is not None
        await asyncio.wait({self._task}, timeout=WAIT_S)
        if not self._task.done():
            return None
        task, self._task = self._task, None
        return task.result()

    async def cancel(self) -> None:
        """End the read, if there is one; what it brought or raised is lost."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            if not self._task.cancelled():
                self._task.exception()  # looked at, so that nobody is warned
            self._task = None
