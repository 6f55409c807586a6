"""Where log lines go: never waits, and never fails whoever has something to log.

A full disk, a closed pipe or a reader that has stopped reading drops lines; the first line that
gets through again is preceded by one that tells how many. Knows nothing of what a line says. On a
terminal, something may be kept in sight below the last line.
"""

import io
import json
import os
import select
from datetime import UTC, datetime
from typing import TextIO

_PIPE_BYTES = 4096  # what a pipe that is ready takes without waiting; POSIX has 512, Linux this


class LineSink:
    """Writes whole lines to a stream; from any thread."""

    def __init__(self, stream: TextIO | None) -> None:
        """None where the process was started without standard error: all lines are dropped."""
        self._stream = stream
        self._file = _file_of(stream)
        self._untold = 0  # lines dropped since the last one that was written
        self._shown = ""  # what stands below the last line
        self.dropped = 0

    @property
    def is_terminal(self) -> bool:
        """Whether somebody may be looking at the lines."""
        return self._file is not None and os.isatty(self._file)

    def msg(self, line: str) -> None:
        """Write one line, or count it as dropped."""
        untold = self._untold
        if untold and self._write(_lines_dropped(untold)):
            self._untold -= untold
        if not self._write(line):
            self.dropped += 1
            self._untold += 1

    def show(self, text: str) -> None:
        """Keep this below the last line of a terminal, in place of what stood there; "" for none.

        Without room for it now, what was there stays. Two threads at once may spoil the sight of
        it until the next call, but no line: a lock would make whoever logs wait.
        """
        if text != self._shown and self._put(f"{_erasure(self._shown)}{text}"):
            self._shown = text

    # The names under which structlog hands lines over.
    debug = info = warning = error = critical = msg

    def _write(self, line: str) -> bool:
        shown = self._shown
        return self._put(f"{_erasure(shown)}{line}\n{shown}")

    def _put(self, text: str) -> bool:
        try:
            if self._file is not None:
                return _write_to(self._file, text.encode(errors="backslashreplace"))
            return self._stream is not None and bool(self._stream.write(text))
        except (OSError, ValueError):  # ValueError: the stream is closed
            return False


def _file_of(stream: TextIO | None) -> int | None:
    try:
        return None if stream is None else stream.fileno()
    except (io.UnsupportedOperation, ValueError):
        return None  # a stream in memory, or a closed one


def _write_to(file: int, content: bytes) -> bool:
    # Past the stream's own buffer, which would keep what a full disk refused, and grow.
    for start in range(0, len(content), _PIPE_BYTES):
        piece = content[start : start + _PIPE_BYTES]
        if not _is_ready(file) or os.write(file, piece) < len(piece):
            return False
    return True


def _is_ready(file: int) -> bool:
    # Not by making it non-blocking: others, such as a terminal, have the same open file.
    poll = select.poll()
    poll.register(file, select.POLLOUT)
    return bool(poll.poll(0))


def _erasure(shown: str) -> str:
    """What takes this from a terminal, and lets it go on where that began."""
    if not shown:
        return ""
    height = shown.count("\n")
    return f"\x1b[{height}A\r\x1b[J" if height else "\r\x1b[J"


def _lines_dropped(count: int) -> str:
    told = {"event": "log.lines_dropped", "level": "warning", "lines": count}
    at = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    return json.dumps({**told, "at": at})
