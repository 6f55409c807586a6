"""Ctrl-C, SIGTERM, a closed terminal: the first ends the demonstration, when it suits.

Stops nothing itself: who has started something stops it.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupt:
    """Raises KeyboardInterrupt, once: a second one would break off the cleaning up after the first.

    While it is deferred `check` alone raises it: a question to Spark that is broken off in the
    middle ends in a traceback, and the next one gets its answer. For the main thread.
    """

    def __init__(self) -> None:
        self._is_asked = False
        self._is_deferred = False

    def heed(self) -> None:
        """Take the signals from now on."""
        for number in SIGNALS:
            is_of_nohup = number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN
            if not is_of_nohup:
                signal.signal(number, self._on_signal)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Do not raise in here, but for `check`, and at the end."""
        self._is_deferred = True
        try:
            yield
        finally:
            self._is_deferred = False
        self.check()

    def check(self) -> None:
        """Raise KeyboardInterrupt if somebody asked for the end."""
        if self._is_asked:
            raise KeyboardInterrupt

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        is_first, self._is_asked = not self._is_asked, True
        if is_first and not self._is_deferred:
            raise KeyboardInterrupt
