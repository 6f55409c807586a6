"""Events of the service and messages of libraries become the same JSON lines."""

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from service.observability.logs import configure_logs, log_loop_error


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level
    structlog.reset_defaults()


def test_events_are_json_lines() -> None:
    """An event is one line with its name, level, time and fields."""
    stream = io.StringIO()
    configure_logs(stream, level="info")

    structlog.get_logger().info("service.started", port=8815)

    event = _only_line(stream)
    assert event.pop("at").endswith("Z")
    assert event == {"event": "service.started", "level": "info", "port": 8815}


def test_events_below_the_level_are_dropped() -> None:
    """What is less than the level asked for is not written."""
    stream = io.StringIO()
    configure_logs(stream, level="warning")

    structlog.get_logger().info("service.started")
    logging.getLogger("asyncio").info("chatter")

    assert stream.getvalue() == ""


def test_library_messages_are_json_lines() -> None:
    """A library's message is one line, too, without what stands behind its first line."""
    stream = io.StringIO()
    configure_logs(stream, level="info")

    logging.getLogger("aiohttp.server").error("Error from %s\nGET /secret", "::1")

    event = _only_line(stream)
    assert event.pop("code").startswith("aiohttp.server:")
    assert event.pop("at").endswith("Z")
    assert event == {"event": "library.message", "level": "error", "text": "Error from ::1"}


def test_library_errors_lose_their_message() -> None:
    """An error that a library logs is told as its type and place, as ours are."""
    stream = io.StringIO()
    configure_logs(stream, level="info")

    try:
        int("4711x")
    except ValueError:
        logging.getLogger("asyncio").exception("failed")

    assert _only_line(stream)["error"] == "builtins.ValueError"
    assert "4711x" not in stream.getvalue()


def test_repeated_events_are_held_back() -> None:
    """A storm of one event, from wherever it comes, does not fill the log."""
    stream = io.StringIO()
    configure_logs(stream, level="info")

    for _ in range(100):
        structlog.get_logger().warning("query.failed", code="timeout")
        logging.getLogger("aiohttp.server").error("again")

    assert len(stream.getvalue().splitlines()) < 20


async def test_lost_errors_of_the_loop_are_logged() -> None:
    """What the event loop reports is an event with the error's type, not its message."""
    stream = io.StringIO()
    configure_logs(stream, level="info")
    context = {"message": "Task exception was never retrieved", "exception": KeyError("4711")}

    log_loop_error(asyncio.get_running_loop(), context)

    event = _only_line(stream)
    assert (event["event"], event["code"]) == ("loop.error", context["message"])
    assert (event["error"], "4711" in stream.getvalue()) == ("builtins.KeyError", False)


def _only_line(stream: io.StringIO) -> dict[str, Any]:
    (line,) = stream.getvalue().splitlines()
    event: dict[str, Any] = json.loads(line)
    return event
