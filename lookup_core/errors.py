"""Error tree of client and service: one class per consequence for the caller.

Also the hint with the nearest valid name for an unknown one.
"""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TypeVar

from lookup_core.compatibility import TextEnum
from lookup_core.error_texts import ERROR_TEXTS, ErrorScope

RETRY_AFTER_S = 1.0  # without a better estimate
_MAX_NAMES_LISTED = 20
_MAX_CHARACTERS_QUOTED = 100

_Named = TypeVar("_Named")


class ErrorCode(TextEnum):
    """The error codes of wire protocol, JSON and logs."""

    # of one key
    TYPE = "type"
    INVALID_TEXT = "invalid_text"
    KEY_TOO_LARGE = "key_too_large"
    KEY_REJECTED = "key_rejected"
    VALUE_REJECTED = "value_rejected"
    ROW_TOO_LARGE = "row_too_large"
    AMBIGUOUS = "ambiguous"
    TIMEOUT = "timeout"
    # of the backend
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
    # of a client
    SIDECAR_UNREACHABLE = "sidecar_unreachable"

    @property
    def is_retryable(self) -> bool:
        """Whether the same request may succeed later, unchanged."""
        return self in _RETRYABLE

    @property
    def is_of_one_key(self) -> bool:
        """Whether one key of a query, or its row, causes the failure of the query."""
        return self in {ErrorCode.KEY_REJECTED, ErrorCode.VALUE_REJECTED}

    @property
    def heals_by_itself(self) -> bool:
        """Whether the cause may pass without a change of configuration, database or rights."""
        return self in _RETRYABLE - _NEEDS_ACTION

    @property
    def scope(self) -> ErrorScope:
        """Where the code occurs."""
        return ERROR_TEXTS[self.value].scope

    @property
    def meaning(self) -> str:
        """The meaning of the code, as a clause."""
        return ERROR_TEXTS[self.value].meaning

    @property
    def remedy(self) -> str:
        """What removes the cause, as a clause."""
        return ERROR_TEXTS[self.value].remedy

    @property
    def explanation(self) -> str:
        """Meaning and remedy."""
        return f"{self.meaning}; {self.remedy}"


_RETRYABLE = frozenset(
    {
        ErrorCode.TIMEOUT,
        ErrorCode.BACKEND_UNAVAILABLE,
        ErrorCode.CONNECTION_LOST,
        ErrorCode.BACKEND_AUTH,
        ErrorCode.TABLE_UNAVAILABLE,
        ErrorCode.OVERLOADED,
        ErrorCode.DRAINING,
        ErrorCode.SIDECAR_UNREACHABLE,
    }
)
_NEEDS_ACTION = frozenset({ErrorCode.BACKEND_AUTH, ErrorCode.TABLE_UNAVAILABLE})


class SidelookError(Exception):
    """Base class of all errors; `detail` names the value and the remedy."""

    def __init__(self, code: ErrorCode, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by state, for Spark: constructors have other parameters than `args`."""
        return _unpickled, (type(self), self.args), self.__dict__

    def add_remedy(self, remedy: str) -> None:
        """Append what the caller can do to the detail."""
        self.detail = f"{self.detail}; {remedy}"
        self.args = (f"{self.code}: {self.detail}",)

    @property
    def is_retryable(self) -> bool:
        """Whether the caller may retry."""
        return self.code.is_retryable


class InvalidRequest(SidelookError):
    """The caller must change the request."""


class Overloaded(SidelookError):
    """The request was refused before any work; `retry_after_s` is the delay for a retry."""

    def __init__(
        self, code: ErrorCode, detail: str, *, retry_after_s: float = RETRY_AFTER_S
    ) -> None:
        super().__init__(code, detail)
        self.retry_after_s = retry_after_s


class BackendError(SidelookError):
    """The backend failed, or refused a query; never a missing row.

    `is_permanent`: only another configuration or another table helps, so callers do not wait.
    """

    def __init__(self, code: ErrorCode, detail: str, *, is_permanent: bool = False) -> None:
        super().__init__(code, detail)
        self.is_permanent = is_permanent

    @property
    def is_retryable(self) -> bool:
        """Whether the caller may retry."""
        return self.code.is_retryable and not self.is_permanent


class ProtocolViolation(SidelookError):
    """The peer violated the streaming protocol; `offset` is the byte in its frame, if known."""

    def __init__(self, code: ErrorCode, detail: str, *, offset: int | None = None) -> None:
        super().__init__(code, detail if offset is None else f"{detail} (at byte {offset})")
        self.offset = offset


def bad_frame(detail: str, offset: int | None = None) -> ProtocolViolation:
    """The violation for a malformed frame."""
    return ProtocolViolation(ErrorCode.BAD_FRAME, detail, offset=offset)


class ConfigurationError(SidelookError):
    """The configuration is invalid; `faults` has all faults; the text has a line for each."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__(ErrorCode.BAD_REQUEST, "\n".join(faults))
        self.faults = tuple(faults)


class LookupFailed(SidelookError):
    """Lookups of a Spark task failed, and the operator is configured to fail with them."""


class SidecarUnreachable(SidelookError):
    """No sidecar responded at the endpoint; `reason` includes the remedy."""

    def __init__(self, endpoint: str, reason: str) -> None:
        super().__init__(ErrorCode.SIDECAR_UNREACHABLE, f"no sidecar at {endpoint}: {reason}")
        self.endpoint = endpoint
        self.reason = reason


def _unpickled(kind: type[SidelookError], args: tuple[object, ...]) -> SidelookError:
    return kind.__new__(kind, *args)


def similar_name(name: str, offered: Sequence[str]) -> str | None:
    """The offered name that is most similar, in any case; None if none is similar."""
    lowered = {candidate.lower(): candidate for candidate in offered}
    close = get_close_matches(name.lower(), list(lowered), n=1)
    return lowered[close[0]] if close else None


def nearest_name(name: str, offered: Sequence[str]) -> str:
    """A clause for an error message: the nearest offered name, otherwise all offered names."""
    if close := similar_name(name, offered):
        return f"; did you mean {close}?"
    if not offered:
        return ""
    more = ", …" if len(offered) > _MAX_NAMES_LISTED else ""
    return f"; available: {', '.join(offered[:_MAX_NAMES_LISTED])}{more}"


def named_dimension(
    dimensions: Mapping[str, _Named], name: str, *, where: str = "configured"
) -> _Named:
    """The dimension with this name; raises InvalidRequest (`unknown_dimension`) naming all.

    The error has the nearest name, too.
    """
    if name in dimensions:
        return dimensions[name]
    wanted, names = name[:_MAX_CHARACTERS_QUOTED], sorted(dimensions)
    close = similar_name(wanted, names)
    hint = f"did you mean {close}? " if close else ""
    detail = f"no dimension {wanted!a}; {hint}{where}: {', '.join(names) or 'none'}"
    raise InvalidRequest(ErrorCode.UNKNOWN_DIMENSION, detail)


def of_dimension(name: str, detail: str) -> str:
    """The detail of a fault, for people who do not see which dimension has it."""
    return f'dimension "{name}": {detail}'
