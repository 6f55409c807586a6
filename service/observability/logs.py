"""Logs as JSON lines: events with fields, from this service and from the libraries it uses.

Not where events are named: whoever has something to say calls `structlog.get_logger()`.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

import structlog
from structlog.typing import Processor

from service.observability.line_sink import LineSink
from service.observability.log_privacy import log_privacy
from service.observability.log_rate_limit import LogRateLimit


def configure_logs(stream: TextIO | None, *, level: str) -> LineSink:
    """Send all events of at least `level` to `stream`; once, at the start of the process.

    Logging is the process's own in both libraries, so this replaces what was set before.
    """
    sink = LineSink(stream)
    threshold = logging.getLevelNamesMapping()[level.upper()]
    processors = _processors()
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=lambda *_: sink,
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(handlers=[_LibraryHandler(sink, processors)], level=threshold, force=True)
    return sink


def log_loop_error(_loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
    """The event loop's exception handler: what no task was left to see."""
    structlog.get_logger().error(
        "loop.error", code=str(context.get("message")), exc_info=context.get("exception")
    )


class _LibraryHandler(logging.Handler):
    """Brings records of the standard library's logging into the same line format."""

    def __init__(self, sink: LineSink, processors: Sequence[Processor]) -> None:
        super().__init__()
        self._sink = sink
        self._processors = processors

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record's first line as the event `library.message`."""
        event: Any = {
            "event": "library.message",
            "code": f"{record.name}:{record.lineno}",
            "text": record.getMessage(),
            "exc_info": record.exc_info,
        }
        try:
            for process in self._processors:
                event = process(None, record.levelname.lower(), event)
        except structlog.DropEvent:
            return
        self._sink.msg(event)


def _processors() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        LogRateLimit(),
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
        log_privacy,
        structlog.processors.JSONRenderer(sort_keys=False),
    ]
