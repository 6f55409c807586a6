"""A thread of its own that works, rests and ends as it is told; what it does is its own.

Not a test.
"""

import threading
from types import TracebackType
from typing import Self

from tests.chaos.rest_gate import RestGate


class RestingWorker:
    """`work` runs in the thread, and passes through the gate before each thing that it does."""

    def __init__(self, name: str) -> None:
        self.gate = RestGate()
        self._thread = threading.Thread(target=self.work, name=name)

    def work(self) -> None:
        """Until the gate says that there is no more work."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        """Start, and wait for `go_on`."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End with what is under way."""
        self.gate.end()
        self._thread.join()

    def go_on(self) -> None:
        """Work from now on."""
        self.gate.open()

    def pause(self) -> None:
        """Begin nothing more; returns when nothing is under way any more."""
        self.gate.close()
