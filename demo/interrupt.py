"""Interrupt: Ctrl-C, SIGTERM or a closed terminal ends the demonstration at a safe point."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupt:
    """Raises KeyboardInterrupt once in the main thread, so that the clean-up is not interrupted.

    While it is deferred, only `check` raises: interrupted calls to Spark end in tracebacks.
    """

    def __init__(self) -> None:
        self._is_requested = False
        self._is_deferred = False

    def install(self) -> None:
        """Handle the signals from now on."""
        for number in SIGNALS:
            is_of_nohup = number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN
            if not is_of_nohup:
                signal.signal(number, self._on_signal)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Raise within the block only from `check`, and at its end."""
        self._is_deferred = True
        try:
            yield
        finally:
            self._is_deferred = False
        self.check()

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal has arrived."""
        if self._is_requested:
            raise KeyboardInterrupt

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        is_first, self._is_requested = not self._is_requested, True
        if is_first and not self._is_deferred:
            raise KeyboardInterrupt
