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
    KEYS_FAILED = 1
    USAGE = 64
    DATA = 65
    NO_INPUT = 66
    UNAVAILABLE = 69
    SOFTWARE = 70
    SYSTEM = 71
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
        case SidelookError(code=ErrorCode.UNKNOWN_DIMENSION):
            return ExitCode.NO_INPUT
        case SidelookError(code=ErrorCode.UNAUTHORIZED | ErrorCode.FORBIDDEN):
            return ExitCode.NO_PERMISSION
        case _:
            return ExitCode.DATA if isinstance(error, InvalidRequest) else ExitCode.SOFTWARE
