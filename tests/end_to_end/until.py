"""Waiting for what another process does: looks again and again, up to a bound.

Not for what happens in this process: that tells by itself.
"""

import time
from collections.abc import Callable

POLL_INTERVAL_S = 0.02


class NotSo(AssertionError):
    """What was waited for did not come in time."""


def until(is_so: Callable[[], object], *, within_s: float = 60.0) -> float:
    """The seconds that it took; raises NotSo if it is not so in time."""
    began_s = time.monotonic()
    while not is_so():
        if time.monotonic() - began_s >= within_s:
            raise NotSo(f"not so within {within_s:g} s")
        time.sleep(POLL_INTERVAL_S)
    return time.monotonic() - began_s


def soon(is_so: Callable[[], object], *, within_s: float = 10.0) -> bool:
    """Whether it is so in time."""
    try:
        until(is_so, within_s=within_s)
    except NotSo:
        return False
    return True
