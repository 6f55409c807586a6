"""A clock for what takes its time as a parameter: nothing passes but what the test says."""

from dataclasses import dataclass


@dataclass(slots=True)
class HandClock:
    """Stands until it is set: what has a deadline is in time, however slow the machine is."""

    now_s: float = 0.0

    def __call__(self) -> float:
        """The time that was set."""
        return self.now_s
