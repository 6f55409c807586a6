"""An event loop that waits for nothing: its clock jumps to the next timer.

For code without sockets and threads: whatever takes seconds takes no time.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class _JumpingSelector(selectors.DefaultSelector):
    """Adds the timeout to the clock instead of waiting for it."""

    def __init__(self) -> None:
        super().__init__()
        self.jumped_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0 if timeout else timeout)
        self.jumped_s += timeout if timeout and not events else 0.0
        return events


class JumpingLoop(asyncio.SelectorEventLoop):
    """The loop; `time` is that of its clock."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Real seconds and all jumps."""
        return super().time() + self._jumping.jumped_s


def run_jumping(main: Coroutine[Any, Any, Result]) -> Result:
    """Run the coroutine in such a loop."""
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(main)
