"""Dedicated daemon thread for file reads, one call after the other.

The event loop's executor is not used: a disk that hangs would block its threads, and a process
waits for executor threads before it exits.
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
IsAbandoned = Callable[[], bool]  # whether the caller has stopped waiting; for any thread


class FileThread:
    """Runs calls that read the file at `path`; the thread starts with the first call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()  # None: the end
        self._thread = threading.Thread(target=self._serve, name="file", daemon=True)
        self._is_closed = False

    async def run(
        self, call: Callable[[IsAbandoned], Result], *, timeout_s: float | None
    ) -> Result:
        """Return the result of the call; a timeout of None waits without a limit.

        Raises what the call raises, and BackendError `timeout`. After a timeout or a cancellation
        the running call continues in the thread; it can check `IsAbandoned` and end early.
        """
        if self._thread.ident is None:
            self._thread.start()
        outcome: Future[Result] = Future()
        self._calls.put(lambda: self._carry_out(call, outcome))
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.wrap_future(outcome)
        except TimeoutError as error:
            detail = f"{self._path}: not read within {timeout_s} s"
            raise BackendError(ErrorCode.TIMEOUT, detail) from error

    def close(self) -> None:
        """Cancel all waiting calls; the running call ends in the thread."""
        self._is_closed = True
        self._calls.put(None)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    def _carry_out(self, call: Callable[[IsAbandoned], Result], outcome: Future[Result]) -> None:
        if self._is_closed:
            outcome.cancel()
        if outcome.cancelled():
            return
        # Marked as running only after the call: a future that runs cannot be cancelled.
        try:
            result = call(outcome.cancelled)
        except Exception as error:  # noqa: BLE001 - the caller receives every error
            if outcome.set_running_or_notify_cancel():
                outcome.set_exception(error)
        else:
            if outcome.set_running_or_notify_cancel():
                outcome.set_result(result)
