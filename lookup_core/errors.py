"""Error tree of client and service: one class per consequence for the caller.

Also the hint that names the nearest valid name for a misspelt one.
"""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from enum import StrEnum


class ErrorCode(StrEnum):
    """What went wrong, as the word that travels on the wire, in JSON and in logs."""

    # of one key
    TYPE = "type"
    INVALID_TEXT = "invalid_text"
    KEY_TOO_LARGE = "key_too_large"
    KEY_REJECTED = "key_rejected"
    AMBIGUOUS = "ambiguous"
    TIMEOUT = "timeout"
    # of the dimension's store
    BACKEND_UNAVAILABLE = "backend_unavailable"
    CONNECTION_LOST = "connection_lost"
    BACKEND_AUTH = "backend_auth"
    BACKEND_REJECTED = "backend_rejected"
    TABLE_UNAVAILABLE = "table_unavailable"
    SCHEMA_CHANGED = "schema_changed"
    FORBIDDEN = "forbidden"
    # of a whole request
    BAD_JSON = "bad_json"
    BAD_REQUEST = "bad_request"
    BAD_ARROW = "bad_arrow"
    UNKNOWN_DIMENSION = "unknown_dimension"
    UNKNOWN_COLUMN = "unknown_column"
    KEY_TYPE = "key_type"
    TOO_MANY_KEYS = "too_many_keys"
    ANSWER_TOO_LARGE = "answer_too_large"
    UNAUTHORIZED = "unauthorized"
    OVERLOADED = "overloaded"
    DRAINING = "draining"
    INTERNAL = "internal"
    # of a stream
    BAD_FRAME = "bad_frame"
    UNSUPPORTED_VERSION = "unsupported_version"
    CREDIT_VIOLATION = "credit_violation"
    SEQUENCE_GAP = "seq_gap"
    UNKNOWN_CHANNEL = "unknown_channel"

    @property
    def is_retryable(self) -> bool:
        """Whether the same question may succeed later without a change of anything."""
        return self in _RETRYABLE

    @property
    def meaning(self) -> str:
        """For people: what the outcome `error` or `timeout` of a key means."""
        return _MEANINGS.get(self, "see the log of the sidecar")


_MEANINGS = {
    ErrorCode.TYPE: "a key is not of the dimension's key type, or beyond its range",
    ErrorCode.INVALID_TEXT: "a key has a character that the database cannot hold",
    ErrorCode.KEY_TOO_LARGE: "a key takes more bytes than a channel may send at once",
    ErrorCode.KEY_REJECTED: "the database refuses the value of a key",
    ErrorCode.AMBIGUOUS: "a key has several rows; set match: first or all, or versions",
    ErrorCode.TIMEOUT: "no answer within the time given",
    ErrorCode.BACKEND_UNAVAILABLE: "the database cannot be reached",
    ErrorCode.CONNECTION_LOST: "the connection to the database broke",
    ErrorCode.BACKEND_AUTH: "the database refused the sidecar's login",
    ErrorCode.BACKEND_REJECTED: "the database refused the query",
    ErrorCode.TABLE_UNAVAILABLE: "the table is missing, or not fit for lookups",
    ErrorCode.SCHEMA_CHANGED: "the table changed while it was looked up",
    ErrorCode.FORBIDDEN: "the sidecar's role may not read the table",
    ErrorCode.OVERLOADED: "too many keys wait in the sidecar",
}
_RETRYABLE = frozenset(
    {
        ErrorCode.TIMEOUT,
        ErrorCode.BACKEND_UNAVAILABLE,
        ErrorCode.CONNECTION_LOST,
        ErrorCode.BACKEND_AUTH,
        ErrorCode.TABLE_UNAVAILABLE,
        ErrorCode.OVERLOADED,
        ErrorCode.DRAINING,
    }
)


class SidelookError(Exception):
    """Root of the tree; `code` says what, `detail` names the thing and the remedy."""

    def __init__(self, code: ErrorCode, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail

    def __reduce__(self) -> tuple[object, ...]:
        """As it is, for the processes of Spark: what constructors take is not what they keep."""
        return _unpickled, (type(self), self.args), self.__dict__

    @property
    def is_retryable(self) -> bool:
        """Whether the caller may try the same thing again."""
        return self.code.is_retryable


class InvalidRequest(SidelookError):
    """The request cannot be served as it is; the caller must change it."""


class Overloaded(SidelookError):
    """The request was refused before any work was done for it."""

    def __init__(self, code: ErrorCode, detail: str, *, retry_after_s: float) -> None:
        super().__init__(code, detail)
        self.retry_after_s = retry_after_s


class BackendError(SidelookError):
    """The dimension's store failed or refused; never means that a row is missing."""


class ProtocolViolation(SidelookError):
    """The peer broke the streaming protocol; `offset` is the byte where, if known."""

    def __init__(self, code: ErrorCode, detail: str, *, offset: int | None = None) -> None:
        super().__init__(code, detail if offset is None else f"{detail} (at byte {offset})")
        self.offset = offset


class ConfigurationError(SidelookError):
    """The settings are wrong; `faults` are all of them, each with its path."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__(ErrorCode.BAD_REQUEST, "; ".join(faults))
        self.faults = tuple(faults)


class LookupFailed(SidelookError):
    """Lookups of a Spark task failed and the operator was told to fail with them."""


class SidecarUnreachable(SidelookError):
    """No sidecar answered at the endpoint; the message names endpoint and remedy."""

    def __init__(self, endpoint: str, reason: str) -> None:
        super().__init__(ErrorCode.BACKEND_UNAVAILABLE, f"no sidecar at {endpoint}: {reason}")
        self.endpoint = endpoint
        self.reason = reason


def _unpickled(kind: type[SidelookError], args: tuple[object, ...]) -> SidelookError:
    return kind.__new__(kind, *args)


_MOST_NAMES_LISTED = 20  # a table of 500 columns must not make an error of 500 names


def nearest_name(name: str, offered: Sequence[str]) -> str:
    """A clause to append to an error: the nearest of the names offered, else what there is."""
    lowered = {candidate.lower(): candidate for candidate in offered}
    close = get_close_matches(name.lower(), list(lowered), n=1)
    if close:
        return f"; did you mean {lowered[close[0]]}?"
    if not offered:
        return ""
    more = ", …" if len(offered) > _MOST_NAMES_LISTED else ""
    return f"; there is {', '.join(offered[:_MOST_NAMES_LISTED])}{more}"


_MOST_CHARACTERS_TOLD = 100  # of a name that may be of any length


def unknown_dimension(
    name: str, configured: Iterable[str], *, where: str = "configured"
) -> InvalidRequest:
    """The error for a name that is none of those configured; it lists them all."""
    there_are = ", ".join(sorted(configured)) or "none"
    detail = f"no dimension {name[:_MOST_CHARACTERS_TOLD]!a}; {where}: {there_are}"
    return InvalidRequest(ErrorCode.UNKNOWN_DIMENSION, detail)
