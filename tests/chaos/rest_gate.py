"""Lets one thread work or rest, as another one says, who knows when it rests.

Not a lock: nothing is guarded by it but the moment.
"""

import threading

_PATIENCE_S = 60.0


class RestGate:
    """Closed at first; `pass_through` is called by the thread that works."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_open = False
        self._is_resting = False
        self._is_over = False

    def pass_through(self) -> bool:
        """Rest while it is closed; False when there will be no more work."""
        with self._changed:
            self._is_resting = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_open or self._is_over)
            self._is_resting = False
            return not self._is_over

    def open(self) -> None:
        """Let it work."""
        with self._changed:
            self._is_open = True
            self._changed.notify_all()

    def close(self) -> None:
        """Let it rest; returns when it does."""
        with self._changed:
            self._is_open = False
            is_resting = self._changed.wait_for(lambda: self._is_resting, _PATIENCE_S)
            assert is_resting, "what is under way does not end"

    def end(self) -> None:
        """Let it come to its end."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
