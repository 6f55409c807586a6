"""An event loop whose clock stands still while anything can run, and then jumps to the next timer.

For tests in which all parties live on one loop: fakes, and Unix sockets of the same process.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class _SkippingSelector(selectors.DefaultSelector):
    """Returns at once, and counts the seconds that it was supposed to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """The files that are ready now; blocks only if no timer is set."""
        if timeout is None:
            return super().select(None)
        ready = super().select(0)
        if not ready:
            self.skipped_s += max(timeout, 0.0)
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Waits cost no time, and a slow machine meets every deadline; never wait by `sleep(0)`."""

    def __init__(self) -> None:
        self._skipping = _SkippingSelector()
        super().__init__(self._skipping)

    def time(self) -> float:
        """The seconds that were skipped, and some that monotonic clocks have at least."""
        return 1_000.0 + self._skipping.skipped_s


LOOP_FACTORIES: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"virtual": VirtualTimeLoop}


def run_in_virtual_time(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine that uses neither other threads nor other processes."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
