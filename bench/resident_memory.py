"""What a process holds in memory, as Linux counts it: the peak since it was last asked to forget.

The process is the one that listens on a Unix socket; nothing is asked of itself.
"""

import socket
import struct
from pathlib import Path

_FORGET_PEAK = "5"  # see proc(5), clear_refs
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


class ResidentMemory:
    """Of the process that listens on a Unix socket."""

    def __init__(self, socket_path: Path) -> None:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(socket_path))
            found = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        self._folder = Path("/proc") / str(_CREDENTIALS.unpack(found)[0])

    def forget_peak(self) -> None:
        """Let the peak begin anew."""
        (self._folder / "clear_refs").write_text(_FORGET_PEAK)

    def peak_bytes(self) -> int:
        """The most that was resident since then."""
        status = (self._folder / "status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
