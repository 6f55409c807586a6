"""Waiting for what another process does: looks again and again, up to a bound.

Not for what happens in this process: that tells by itself.
"""

import time
from collections.abc import Callable

POLL_INTERVAL_S = 0.02


def until(is_so: Callable[[], object], *, within_s: float = 60.0) -> float:
    """The seconds that it took; AssertionError if it is not so in time."""
    began_s = time.monotonic()
    while not is_so():
        waited_s = time.monotonic() - began_s
        assert waited_s < within_s, f"not so within {within_s:g} s"
        time.sleep(POLL_INTERVAL_S)
    return time.monotonic() - began_s
