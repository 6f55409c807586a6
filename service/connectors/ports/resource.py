"""Resource: what a backend, an enumerator or a reader opens, and closes in the other order."""

import asyncio
from abc import ABC, abstractmethod
from contextlib import AsyncExitStack
from typing import Any, Self


class Resource(ABC):
    """For classes with something to close: `async with` calls `open`, and unwinds its stack.

    An `open` that fails, or that is cancelled, closes what it has opened.
    """

    _stack: AsyncExitStack  # while it is open

    @abstractmethod
    async def open(self, stack: AsyncExitStack) -> None:
        """Open the parts, and leave the end of each on the stack."""

    async def __aenter__(self) -> Self:
        """Open it; raises what `open` raises."""
        async with AsyncExitStack() as stack:
            await self.open(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it, without the caller's error."""
        await self._stack.aclose()


async def cancel(task: asyncio.Task[Any] | None) -> None:
    """Cancel a task that is no longer needed; its result or error is dropped."""
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
