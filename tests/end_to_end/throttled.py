"""A process that gets a share of a processor, as one that its control group throttles.

By stopping and continuing it, which needs no right to make control groups; nobody is told.
"""

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

PERIOD_S = 0.1  # the kernel's own, of CPU limits


@contextmanager
def throttled(process: "subprocess.Popen[bytes]", *, share: float) -> Iterator[None]:
    """It runs for this share of each tenth of a second, until the block ends."""
    ended = threading.Event()

    def throttle() -> None:
        while not ended.wait(share * PERIOD_S):
            os.kill(process.pid, signal.SIGSTOP)
            ended.wait((1 - share) * PERIOD_S)
            os.kill(process.pid, signal.SIGCONT)

    throttling = threading.Thread(target=throttle)
    throttling.start()
    try:
        yield
    finally:
        ended.set()
        throttling.join()
        os.kill(process.pid, signal.SIGCONT)
