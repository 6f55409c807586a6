"""Which of many equal warnings are written: a log must tell of a fault, not be flooded by it.

Not the log itself; whoever warns asks first.
"""

_EVERY_S = 30.0


class WarningGate:
    """Lets the first warning of each reason pass, and one every 30 s as long as it lasts."""

    def __init__(self) -> None:
        self._passed_at: dict[str, float] = {}  # {reason: monotonic seconds}

    def is_due(self, reason: str, now: float) -> bool:
        """Whether to warn of this now; that counts as done."""
        self._passed_at = {
            each: passed_at
            for each, passed_at in self._passed_at.items()
            if now - passed_at < _EVERY_S
        }
        if reason in self._passed_at:
            return False
        self._passed_at[reason] = now
        return True

    def on_success(self) -> None:
        """What was wrong is over: the next warning is news."""
        self._passed_at.clear()
