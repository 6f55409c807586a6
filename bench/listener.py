"""The process that listens on a Unix socket: its number, and the processor time it has taken.

Linux only; nothing is asked of the process itself.
"""

import socket
import struct
from pathlib import Path

import psutil

_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


def listener(socket_path: Path) -> psutil.Process:
    """The process; raises OSError if nobody listens."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(socket_path))
        found = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return psutil.Process(_CREDENTIALS.unpack(found)[0])


def cpu_s(process: psutil.Process) -> float:
    """Its processor time so far, in user space and in the kernel."""
    times = process.cpu_times()
    return float(times.user + times.system)
