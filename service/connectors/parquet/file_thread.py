"""A thread of its own, in which a file is read, one call after the other.

Not the event loop's threads: a disk that hangs must take them from nobody. Nor an executor's, for
which a process waits until they have ended.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from lookup_core.errors import BackendError, ErrorCode

Result = TypeVar("Result")
IsLeft = Callable[[], bool]  # whether nobody waits for the call any more; for any thread


class FileThread:
    """For calls that read what is at `path`; begins with the first of them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()  # None: the end
        self._thread = threading.Thread(target=self._serve, name="file", daemon=True)
        self._is_closed = False

    async def run(self, call: Callable[[IsLeft], Result], *, timeout_s: float | None) -> Result:
        """What the call returns, or raises; BackendError `timeout` if that takes longer.

        None waits as long as it takes. The timeout and cancellation leave a call that has begun to
        the thread: it may ask whether it is left, and end.
        """
        if self._thread.ident is None:
            self._thread.start()
        told: Future[Result] = Future()
        self._calls.put(lambda: self._carry_out(call, told))
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.wrap_future(told)
        except TimeoutError as error:
            detail = f"{self._path}: not read within {timeout_s} s"
            raise BackendError(ErrorCode.TIMEOUT, detail) from error

    def close(self) -> None:
        """Begin no call any more; the one under way ends in the thread."""
        self._is_closed = True
        self._calls.put(None)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    def _carry_out(self, call: Callable[[IsLeft], Result], told: Future[Result]) -> None:
        if self._is_closed:
            told.cancel()
        if told.cancelled():
            return
        # Not marked as running before it has ended: until then it can be cancelled.
        try:
            result = call(told.cancelled)
        except Exception as error:  # noqa: BLE001 - all of it is for who waits
            if told.set_running_or_notify_cancel():
                told.set_exception(error)
        else:
            if told.set_running_or_notify_cancel():
                told.set_result(result)
