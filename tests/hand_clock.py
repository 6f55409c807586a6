"""A clock that tests set by hand."""

from dataclasses import dataclass


@dataclass(slots=True)
class HandClock:
    """Returns the time that was set last."""

    now_s: float = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s
