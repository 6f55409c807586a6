"""Pending read: a read that outlives the call that began it."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

WAIT_S = 1.0  # the maximal duration of a reader's `read`

Result = TypeVar("Result")


class PendingRead(Generic[Result]):
    """At most one read at a time; its owner takes the result, or cancels it when it closes.

    Not a task of a group: a failure is the result of `take_result`, and cancels no other task.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[Result] | None = None

    @property
    def is_begun(self) -> bool:
        """Whether a read was begun whose result is not taken yet."""
        return self._task is not None

    @property
    def is_done(self) -> bool:
        """Whether a result can be taken without waiting."""
        return self._task is not None and self._task.done()

    def begin(self, reading: Coroutine[Any, Any, Result]) -> None:
        """Begin a read; the result of the former one was taken."""
        self._task = asyncio.create_task(reading)

    async def take_result(self) -> Result | None:
        """The result of the read, once; None if there is none, or it is pending after a second.

        Raises what the read raised. After a cancellation the next call continues.
        """
        task = self._task
        if task is None or not (await asyncio.wait({task}, timeout=WAIT_S))[0]:
            return None
        self._task = None
        return task.result()

    async def cancel(self) -> None:
        """Cancel the read, if there is one; its result or error is dropped."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            if not self._task.cancelled():
                self._task.exception()  # retrieved, else asyncio logs it
            self._task = None
