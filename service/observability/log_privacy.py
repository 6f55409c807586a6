"""What must never stand in a log, taken out of every event: keys, rows, tokens, passwords.

The last net, not a licence: who logs names codes, counts and dimensions in the first place.
"""

import re
import sys
import traceback
from collections.abc import Iterable

from structlog.typing import EventDict, WrappedLogger

MAX_TEXT = 300
REMOVED = "[removed]"
_PRIVATE = frozenset(
    {"key", "keys", "row", "rows", "token", "password", "secret", "dsn", "authorization", "body"}
)
_PASSWORD_IN_URL = re.compile(r"(?<=://)[^/@\s]*@")


def log_privacy(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """The event without private fields, with short texts and with errors as type and place.

    The message of an exception is left out: PostgreSQL and Python both quote values in it.
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
    """Where each frame stands; without the source, which may hold values."""
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
