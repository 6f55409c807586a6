"""A process that stands still for a while, as on a node that is out of CPU or swaps.

Its sockets stay open, so that nobody is told.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def frozen(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """SIGSTOP, and SIGCONT at the end."""
    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)
