"""Structured logs as JSON lines, without private values and with a rate limit for repeats."""

import asyncio
import logging
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TextIO

import structlog
from structlog import DropEvent
from structlog.typing import EventDict, Processor, WrappedLogger

from lookup_core.rate_limits import EventRateLimit
from service.observability.line_sink import LineSink

MAX_TEXT = 300
WINDOW_S = 1.0
REMOVED = "[removed]"
_PRIVATE = frozenset(
    {"key", "keys", "row", "rows", "token", "password", "secret", "dsn", "authorization", "body"}
)
_PASSWORD_IN_URL = re.compile(r"(?<=://)[^/@\s]*@")


def log_privacy(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """The event without private values, with short texts, and with errors as type and frames.

    Messages of exceptions are removed: PostgreSQL and Python quote values in them.
    """
    error = _error(event.pop("exc_info", None))
    kept = {name: REMOVED if name in _PRIVATE else _shortened(event[name]) for name in event}
    return kept if error is None else {**kept, **_summary(error)}


def _shortened(value: object) -> object:
    if not isinstance(value, str):
        return value
    lines = value.splitlines() or [""]
    return _PASSWORD_IN_URL.sub(REMOVED + "@", lines[0][:MAX_TEXT])


def _error(exc_info: object) -> BaseException | None:
    match exc_info:
        case BaseException():
            return exc_info
        case (type(), BaseException() as error, _):
            return error
        case True:
            return sys.exc_info()[1]
        case _:
            return None


def _summary(error: BaseException) -> EventDict:
    summary: EventDict = {
        "error": _type_name(error),
        "frames": frame_texts(traceback.extract_tb(error.__traceback__)),
    }
    if error.__cause__ is not None:
        summary["cause"] = _type_name(error.__cause__)
    return summary


def _type_name(error: BaseException) -> str:
    kind = type(error)
    return f"{kind.__module__}.{kind.__qualname__}"


def frame_texts(frames: Iterable[traceback.FrameSummary]) -> list[str]:
    """File, line and function of each frame; the source text may contain values."""
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]


# What an event is about: names of the configuration, and peers. Details may differ in each event.
_SUBJECT = (
    *("event", "code", "peer", "dimension", "table", "create_index", "path", "topic", "channel"),
)


class LogRateLimit:
    """Passes at most `per_second` events of the same name, code and subject; thread-safe."""

    def __init__(self, per_second: int = 5, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = EventRateLimit(per_second, window_s=WINDOW_S)
        self._clock = clock
        self._lock = threading.Lock()  # never held while waiting

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        """The event, with `suppressed` if some before it were dropped; raises DropEvent."""
        subject = tuple(str(event.get(field)) for field in _SUBJECT)
        with self._lock:
            suppressed = self._limit.admit(subject, self._clock())
        if suppressed is None:
            raise DropEvent
        return {**event, "suppressed": suppressed} if suppressed else event


def configure_logs(stream: TextIO | None, *, level: str) -> LineSink:
    """Send events of at least `level` to `stream`; replaces the process's log configuration."""
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
    """The event loop's exception handler: logs errors that no task has handled."""
    structlog.get_logger().error(
        "loop.error", code=str(context.get("message")), exc_info=context.get("exception")
    )


class _LibraryHandler(logging.Handler):
    """Writes records of the standard library's logging as events."""

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
