"""Exit codes of the commands, with the numbers of sysexits.h."""

from enum import IntEnum

from lookup_core.errors import (
    ConfigurationError,
    ErrorCode,
    InvalidRequest,
    SidecarUnreachable,
    SidelookError,
)


class ExitCode(IntEnum):
    """Result of a command."""

    OK = 0
    KEYS_FAILED = 1  # lookups of some keys failed
    USAGE = 64
    DATA = 65  # a key or request does not fit the dimension
    NO_INPUT = 66  # unknown dimension
    UNAVAILABLE = 69  # no sidecar at the endpoint
    SOFTWARE = 70
    SYSTEM = 71  # an operating system call failed
    TRY_AGAIN = 75
    NO_PERMISSION = 77
    CONFIG = 78


def exit_code(error: SidelookError) -> ExitCode:
    """Return the code of an error that ended a command."""
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
