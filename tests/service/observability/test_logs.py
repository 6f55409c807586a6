"""Logs: JSON lines without private values, limited in rate, written without blocking."""

import asyncio
import io
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import pytest
import structlog
from structlog import DropEvent

from lookup_core.rate_limits import MAX_SUBJECTS
from service.observability.line_sink import LineSink
from service.observability.logs import (
    MAX_TEXT,
    REMOVED,
    WINDOW_S,
    LogRateLimit,
    configure_logs,
    log_loop_error,
    log_privacy,
)
from tests.hand_clock import HandClock

EVENT = {"event": "backend.failed", "code": "timeout"}
PIPE_BYTES = 64 * 1024  # the capacity of a pipe of Linux


@pytest.fixture
def stream(logging_as_before: None) -> io.StringIO:  # noqa: ARG001
    """The log of the process."""
    log = io.StringIO()
    configure_logs(log, level="info")
    return log


def only_event(stream: io.StringIO) -> dict[str, Any]:
    """The only line, without its time."""
    (line,) = stream.getvalue().splitlines()
    event: dict[str, Any] = json.loads(line)
    assert event.pop("at").endswith("Z")
    return event


class TestLines:
    """Events of the service and messages of libraries have one format."""

    def test_event_is_a_line_of_json(self, stream: io.StringIO) -> None:
        """An event has a name, a level, a time and fields; lower levels are not written."""
        configure_logs(stream, level="warning")

        structlog.get_logger().info("service.started")
        logging.getLogger("asyncio").info("chatter")
        structlog.get_logger().warning("service.started", port=8815)

        assert only_event(stream) == {"event": "service.started", "level": "warning", "port": 8815}

    def test_library_message_is_one_line(self, stream: io.StringIO) -> None:
        """Of a message only the first line is logged, and of an error its type and place."""
        try:
            int("4711x")
        except ValueError:
            logging.getLogger("aiohttp.server").exception("Error from %s\nGET /secret", "::1")

        event = only_event(stream)
        assert event.pop("code").startswith("aiohttp.server:")
        assert event.pop("frames")
        assert event == {
            "event": "library.message",
            "level": "error",
            "text": "Error from ::1",
            "error": "builtins.ValueError",
        }

    def test_storm_does_not_fill_the_log(self, stream: io.StringIO) -> None:
        """Repeated events of the service and of libraries are limited, each by itself."""
        for _ in range(100):
            structlog.get_logger().warning("query.failed", code="timeout")
            logging.getLogger("aiohttp.server").error("again")

        events = [json.loads(line)["event"] for line in stream.getvalue().splitlines()]
        assert set(events) == {"query.failed", "library.message"}
        assert len(events) < 50

    async def test_lost_error_of_the_loop_is_logged(self, stream: io.StringIO) -> None:
        """An error that no task sees is logged with its type, and not with its message."""
        context = {"message": "Task exception was never retrieved", "exception": KeyError("4711")}

        log_loop_error(asyncio.get_running_loop(), context)

        event = only_event(stream)
        assert (event["event"], event["code"]) == ("loop.error", context["message"])
        assert (event["error"], "4711" in stream.getvalue()) == ("builtins.KeyError", False)


class TestPrivacy:
    """Private values never leave in an event."""

    @pytest.mark.parametrize(
        "name", [*("key", "keys", "row", "rows", "token", "password", "dsn"), "secret", "body"]
    )
    def test_private_fields_are_removed(self, name: str) -> None:
        """A private field keeps its name and loses its value; other fields are unchanged."""
        event = {"event": "x", "code": "timeout", "keys_total": 3, "exc_info": None}

        found = log_privacy(None, "info", {**event, name: "secret"})

        assert found == {"event": "x", "code": "timeout", "keys_total": 3, name: REMOVED}

    def test_texts_are_short_and_without_passwords(self) -> None:
        """A text loses the credentials of an address, and all but the start of its first line."""
        event = {"event": "a" * 1000, "text": "one\ntwo", "to": "to postgresql://bob:hunter2@db/x"}

        assert log_privacy(None, "info", event) == {
            "event": "a" * MAX_TEXT,
            "text": "one",
            "to": f"to postgresql://{REMOVED}@db/x",
        }

    @pytest.mark.parametrize("as_flag", [True, False])
    def test_errors_lose_their_message(self, *, as_flag: bool) -> None:
        """An error is logged as type, cause and place; its message may quote a key."""
        try:
            _fail()
        except RuntimeError as error:
            event = log_privacy(None, "error", {"event": "x", "exc_info": as_flag or error})

        frames = event.pop("frames")
        assert event == {
            "event": "x",
            "error": "builtins.RuntimeError",
            "cause": "builtins.KeyError",
        }
        assert [frame.rpartition(" ")[2] for frame in frames][-1] == "_fail"


def _fail() -> None:
    raise RuntimeError("the key was 4711") from KeyError(4711)


class TestRateLimit:
    """Repeated events are dropped and counted."""

    def logged(self, limit: LogRateLimit, event: dict[str, str]) -> object:
        """The event as it is logged; raises DropEvent."""
        return limit(None, "warning", dict(event))

    def test_events_over_the_limit_are_dropped(self) -> None:
        """The first event of the next window says how many were dropped, once."""
        clock = HandClock()
        limit = LogRateLimit(2, clock)
        assert [self.logged(limit, EVENT) for _ in range(2)] == [EVENT, EVENT]
        clock.now_s = WINDOW_S - 0.01
        for _ in range(3):
            with pytest.raises(DropEvent):
                self.logged(limit, EVENT)

        clock.now_s = WINDOW_S

        assert self.logged(limit, EVENT) == {**EVENT, "suppressed": 3}
        assert self.logged(limit, EVENT) == EVENT
        with pytest.raises(DropEvent):
            self.logged(limit, EVENT)

    @pytest.mark.parametrize(
        "name", ["code", "peer", "event", "dimension", "table", "create_index", "path", "channel"]
    )
    def test_other_subjects_have_their_own_limit(self, name: str) -> None:
        """A code, peer or dimension that floods the log does not suppress another one."""
        limit = LogRateLimit(1, HandClock())
        self.logged(limit, EVENT)

        other = {**EVENT, name: "other"}
        assert self.logged(limit, other) == other
        with pytest.raises(DropEvent):
            self.logged(limit, {**other, "detail": "another"})

    def test_subjects_are_bounded(self) -> None:
        """Beyond the bound the oldest subject is forgotten."""
        limit = LogRateLimit(1, HandClock())
        self.logged(limit, EVENT)

        for peer in range(MAX_SUBJECTS - 1):
            self.logged(limit, {**EVENT, "peer": str(peer)})
        with pytest.raises(DropEvent):
            self.logged(limit, EVENT)
        for peer in range(MAX_SUBJECTS):
            self.logged(limit, {**EVENT, "peer": f"new {peer}"})

        assert self.logged(limit, EVENT) == EVENT


class FullDisk(io.StringIO):
    """A stream in memory that fails like a full disk while it is full."""

    is_full = True

    def write(self, text: str) -> int:
        """Take the text, or fail."""
        if self.is_full:
            raise OSError(28, "No space left on device")
        return super().write(text)


@contextmanager
def pipe() -> Iterator[tuple[int, TextIO]]:
    """The two ends of a pipe."""
    read, write = os.pipe()
    with os.fdopen(read, "rb") as reader, os.fdopen(write, "w") as writer:
        yield reader.fileno(), writer


class TestSink:
    """A line is written whole, or counted as dropped; nothing waits or fails."""

    def test_lines_are_written_whole(self, tmp_path: Path) -> None:
        """A long line is not cut, is there at once, and may hold any character."""
        long = "x" * 100_000
        with (tmp_path / "log").open("w") as stream:
            sink = LineSink(stream)
            for line in ("é", long, "\ud800"):
                sink.msg(line)

            assert (tmp_path / "log").read_text() == f"é\n{long}\n\\ud800\n"
        assert sink.dropped == 0

    def test_unwritable_logs_drop_lines(self) -> None:
        """A full disk, a pipe without a reader, and a closed or missing stream fail no caller."""
        read, write = os.pipe()
        os.close(read)
        closed = io.StringIO()
        closed.close()
        with Path("/dev/full").open("w") as full, os.fdopen(write, "w") as broken:
            sinks = [LineSink(each) for each in (full, broken, closed, None)]
            for sink in sinks:
                sink.msg("one")
                sink.msg("two")

        assert [sink.dropped for sink in sinks] == [2] * 4

    def test_dropped_lines_are_reported(self) -> None:
        """The first line that is written again is preceded by their number, once."""
        stream = FullDisk()
        sink = LineSink(stream)
        sink.msg("one")
        sink.msg("two")
        stream.is_full = False
        sink.msg("three")
        sink.msg("four")

        report, *others = stream.getvalue().splitlines()
        event = json.loads(report)
        assert event.pop("at").endswith("Z")
        assert event == {"event": "log.lines_dropped", "level": "warning", "lines": 2}
        assert (others, sink.dropped) == (["three", "four"], 2)

    def test_stalled_reader_costs_lines_only(self) -> None:
        """A pipe that is not read takes its capacity; further lines are dropped without waiting."""
        with pipe() as (reader, writer):
            sink = LineSink(writer)
            for _ in range(3 * PIPE_BYTES // 1000):
                sink.msg("x" * 999)
            dropped = sink.dropped
            os.read(reader, PIPE_BYTES)
            sink.msg("again")
            report, again, _ = os.read(reader, PIPE_BYTES).decode().rsplit("\n", 2)

        assert dropped > PIPE_BYTES // 1000
        assert (json.loads(report.splitlines()[-1])["lines"], again) == (dropped, "again")

    def test_shown_text_stays_below_the_lines(self) -> None:
        """It is removed before a line and written again; other text replaces it."""
        stream = io.StringIO()
        sink = LineSink(stream)

        sink.show("bar 1\nbar 2")
        sink.msg("line")
        sink.show("bar 1\nbar 2")
        sink.show("whole")
        sink.show("")
        sink.msg("last")

        two = "bar 1\nbar 2"
        assert stream.getvalue() == (
            f"{two}\x1b[1A\r\x1b[Jline\n{two}\x1b[1A\r\x1b[Jwhole\r\x1b[Jlast\n"
        )

    def test_refused_text_is_written_later(self) -> None:
        """A text that could not be written does not count as shown."""
        stream = FullDisk()
        sink = LineSink(stream)
        sink.show("bar")
        stream.is_full = False

        sink.msg("line")
        sink.show("bar")

        assert (stream.getvalue(), sink.dropped) == ("line\nbar", 0)
