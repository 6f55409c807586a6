"""What a process holds in memory, as Linux counts it: the peak since it was last asked to forget.

The process is the one that listens on a Unix socket; nothing is asked of itself.
"""

from pathlib import Path

from bench.listener import listener

_FORGET_PEAK = "5"  # see proc(5), clear_refs


class ResidentMemory:
    """Of the process that listens on a Unix socket."""

    def __init__(self, socket_path: Path) -> None:
        self._folder = Path("/proc") / str(listener(socket_path).pid)

    def forget_peak(self) -> None:
        """Let the peak begin anew."""
        (self._folder / "clear_refs").write_text(_FORGET_PEAK)

    def peak_bytes(self) -> int:
        """The most that was resident since then."""
        status = (self._folder / "status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
