"""Log lines get through or are counted as dropped; whoever logs never waits and never fails."""

import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from service.observability.line_sink import LineSink

PIPE_BYTES = 64 * 1024  # Linux's pipes hold so much


class FullDisk(io.StringIO):
    """A stream in memory that takes nothing while it is full."""

    is_full = True

    def write(self, text: str) -> int:
        """Fail as a full disk does, unless it has room again."""
        if self.is_full:
            raise OSError(28, "No space left on device")
        return super().write(text)


@contextmanager
def pipe() -> Iterator[tuple[int, TextIO]]:
    """The two ends of a pipe."""
    read, write = os.pipe()
    with os.fdopen(read, "rb") as reader, os.fdopen(write, "w") as writer:
        yield reader.fileno(), writer


def test_lines_are_written_whole(tmp_path: Path) -> None:
    """Each line ends, is there at once, and is never cut, however long it is."""
    long = "x" * 100_000
    with (tmp_path / "log").open("w") as stream:
        sink = LineSink(stream)
        sink.msg("é")
        sink.msg(long)

        assert (tmp_path / "log").read_text() == f"é\n{long}\n"
    assert sink.dropped == 0


def test_strange_characters_do_no_harm(tmp_path: Path) -> None:
    """What UTF-8 cannot say is written as an escape."""
    with (tmp_path / "log").open("w") as stream:
        LineSink(stream).msg("\ud800")

    assert (tmp_path / "log").read_text() == "\\ud800\n"


def test_full_disk_drops_lines() -> None:
    """A log that cannot be written is counted; it never fails what is being logged."""
    with Path("/dev/full").open("w") as stream:
        sink = LineSink(stream)
        sink.msg("one")
        sink.msg("two")

    assert sink.dropped == 2


def test_dropped_lines_are_told() -> None:
    """The first line that gets through again is preceded by how many did not, once."""
    stream = FullDisk()
    sink = LineSink(stream)
    sink.msg("one")
    sink.msg("two")
    stream.is_full = False
    sink.msg("three")
    sink.msg("four")

    told, *others = stream.getvalue().splitlines()
    event = json.loads(told)
    assert event.pop("at").endswith("Z")
    assert event == {"event": "log.lines_dropped", "level": "warning", "lines": 2}
    assert (others, sink.dropped) == (["three", "four"], 2)


def test_reader_that_stops_costs_lines_only() -> None:
    """A pipe that nobody empties takes what it holds; the rest is dropped without waiting."""
    with pipe() as (reader, writer):
        sink = LineSink(writer)
        for _ in range(3 * PIPE_BYTES // 1000):
            sink.msg("x" * 999)
        dropped = sink.dropped
        os.read(reader, PIPE_BYTES)
        sink.msg("again")
        told, again, _ = os.read(reader, PIPE_BYTES).decode().rsplit("\n", 2)

    assert dropped > PIPE_BYTES // 1000
    assert (json.loads(told.splitlines()[-1])["lines"], again) == (dropped, "again")


def test_closed_pipe_drops_lines() -> None:
    """A reader that is gone for good is no reason to end."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as writer:
        sink = LineSink(writer)
        sink.msg("line")

    assert sink.dropped == 1


def test_closed_streams_drop_lines() -> None:
    """So does a stream that is closed, or that the process was never given."""
    stream = io.StringIO()
    stream.close()
    sinks = [LineSink(stream), LineSink(None)]

    for sink in sinks:
        sink.msg("line")

    assert [sink.dropped for sink in sinks] == [1, 1]


def test_shown_text_stays_below_the_lines() -> None:
    """It is taken away before a line, and stands below that again."""
    stream = io.StringIO()
    sink = LineSink(stream)

    sink.show("bar 1\nbar 2")
    sink.msg("line")

    assert stream.getvalue() == "bar 1\nbar 2\x1b[1A\r\x1b[Jline\nbar 1\nbar 2"


def test_shown_text_is_replaced() -> None:
    """Other text comes in its place, the same is not written again, and none leaves nothing."""
    stream = io.StringIO()
    sink = LineSink(stream)

    for text in ("half", "half", "whole", "", ""):
        sink.show(text)
    sink.msg("line")

    assert stream.getvalue() == "half\r\x1b[Jwhole\r\x1b[Jline\n"


def test_refused_text_changes_nothing() -> None:
    """What could not be written does not count as shown, and is tried again by the next call."""
    stream = FullDisk()
    sink = LineSink(stream)
    sink.show("bar")
    stream.is_full = False

    sink.msg("line")
    sink.show("bar")

    assert (stream.getvalue(), sink.dropped) == ("line\nbar", 0)


def test_terminal_is_told_from_a_file(tmp_path: Path) -> None:
    """Only where a person may look, something is worth showing."""
    reader, writer = os.openpty()
    with os.fdopen(writer, "w") as terminal, (tmp_path / "log").open("w") as file:
        told = [LineSink(each).is_terminal for each in (terminal, file, io.StringIO(), None)]
    os.close(reader)

    assert told == [True, False, False, False]
