"""What the process tells its caller by its exit code; the numbers are those of sysexits.h.

Not for messages: those go to stderr beside it.
"""

from enum import IntEnum

from lookup_core.errors import (
    ConfigurationError,
    ErrorCode,
    InvalidRequest,
    SidecarUnreachable,
    SidelookError,
)


class ExitCode(IntEnum):
    """Why a command ended."""

    OK = 0
    KEYS_FAILED = 1  # the lookup was answered, but not for every key
    USAGE = 64
    DATA = 65  # what was asked does not fit the dimension
    NO_INPUT = 66  # what was asked for does not exist
    UNAVAILABLE = 69  # no sidecar there
    SOFTWARE = 70
    SYSTEM = 71  # the operating system refused
    TRY_AGAIN = 75
    NO_PERMISSION = 77
    CONFIG = 78


def exit_code(error: SidelookError) -> ExitCode:
    """The code for an error that ended a command."""
    match error:
        case ConfigurationError():
            return ExitCode.CONFIG
        case SidecarUnreachable():
            return ExitCode.UNAVAILABLE
        case SidelookError(is_retryable=True):
            return ExitCode.TRY_AGAIN
        case _:
            fallback = ExitCode.DATA if isinstance(error, InvalidRequest) else ExitCode.SOFTWARE
            return _CODES.get(error.code, fallback)


_CODES = {
    ErrorCode.UNKNOWN_DIMENSION: ExitCode.NO_INPUT,
    ErrorCode.UNAUTHORIZED: ExitCode.NO_PERMISSION,
    ErrorCode.FORBIDDEN: ExitCode.NO_PERMISSION,
}
