"""Non-blocking log sink: writes whole lines or drops them; never waits, never raises.

After a full disk, a closed pipe or a stalled reader, the number of dropped lines is logged first.
On a terminal, one text (such as progress bars) can stay below the last line.
"""

import io
import json
import os
import select
from datetime import UTC, datetime
from typing import TextIO

_PIPE_BYTES = 4096  # a ready pipe of Linux takes this without blocking; POSIX promises 512


class LineSink:
    """Writes whole lines to a stream; from any thread."""

    def __init__(self, stream: TextIO | None) -> None:
        """`stream` is None in a process without standard error: all lines are dropped."""
        self._stream = stream
        self._file = _file_of(stream)
        self._unreported = 0  # lines dropped since the last written one
        self._shown = ""  # the text below the last line
        self.dropped = 0

    @property
    def is_terminal(self) -> bool:
        """Whether the stream is a terminal."""
        return self._file is not None and os.isatty(self._file)

    def msg(self, line: str) -> None:
        """Write one line, or count it as dropped."""
        unreported = self._unreported
        if unreported and self._write(_lines_dropped(unreported)):
            self._unreported -= unreported
        if not self._write(line):
            self.dropped += 1
            self._unreported += 1

    def show(self, text: str) -> None:
        """Keep this text below the last line of a terminal, instead of the former one; "" for none.

        If it cannot be written now, the former one stays. Concurrent calls may garble the text
        until the next call, but no line: a lock would make callers wait.
        """
        if text != self._shown and self._put(f"{_erasure(self._shown)}{text}"):
            self._shown = text

    # structlog calls the method of the event's level.
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
    # Bypasses the stream's buffer, which would grow while a disk is full.
    for start in range(0, len(content), _PIPE_BYTES):
        piece = content[start : start + _PIPE_BYTES]
        if not _is_ready(file) or os.write(file, piece) < len(piece):
            return False
    return True


def _is_ready(file: int) -> bool:
    # O_NONBLOCK would affect other processes that share the open file, such as a shell.
    poll = select.poll()
    poll.register(file, select.POLLOUT)
    return bool(poll.poll(0))


def _erasure(shown: str) -> str:
    """The escape sequence that removes this text from a terminal."""
    if not shown:
        return ""
    height = shown.count("\n")
    return f"\x1b[{height}A\r\x1b[J" if height else "\r\x1b[J"


def _lines_dropped(count: int) -> str:
    at = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    event = {"event": "log.lines_dropped", "level": "warning", "lines": count, "at": at}
    return json.dumps(event)
