"""A thread of its own, in which a file is read, one call after the other.

Not the event loop's threads: a disk that hangs must not take them from others.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from lookup_core.errors import BackendError, ErrorCode

Result = TypeVar("Result")


class FileThread:
    """For calls that read what is at `path`; begins with the first of them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="file")

    async def run(self, call: Callable[[], Result], *, timeout_s: float) -> Result:
        """What the call returns, or raises; BackendError `timeout` if that takes longer.

        The timeout and cancellation leave a call that has begun to the thread, which ends it.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                return await loop.run_in_executor(self._executor, call)
        except TimeoutError as error:
            detail = f"{self._path}: not read within {timeout_s} s"
            raise BackendError(ErrorCode.TIMEOUT, detail) from error

    def close(self) -> None:
        """Begin no call any more; the one under way ends in the thread."""
        self._executor.shutdown(wait=False, cancel_futures=True)
