"""Polling with a deadline for a condition of another process.

Conditions of this process are awaited by events.
"""

import time
from collections.abc import Callable

POLL_INTERVAL_S = 0.02


class NotSo(AssertionError):
    """The condition did not become true before the deadline."""


def until(is_so: Callable[[], object], *, within_s: float = 60.0) -> float:
    """The seconds until the condition is true; raises NotSo at the deadline."""
    began_s = time.monotonic()
    while not is_so():
        if time.monotonic() - began_s >= within_s:
            raise NotSo(f"not so within {within_s:g} s")
        time.sleep(POLL_INTERVAL_S)
    return time.monotonic() - began_s


def soon(is_so: Callable[[], object], *, within_s: float = 10.0) -> bool:
    """Whether the condition becomes true before the deadline."""
    try:
        until(is_so, within_s=within_s)
    except NotSo:
        return False
    return True
