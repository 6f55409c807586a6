"""Exit codes of the commands, with the numbers of sysexits.h."""

from enum import ReprEnum
from typing import Self

from lookup_core.errors import (
    ConfigurationError,
    ErrorCode,
    InvalidRequest,
    SidecarUnreachable,
    SidelookError,
)


class _MeaningfulInt(int):
    """A number with its meaning, a sentence."""

    meaning: str

    def __new__(cls, value: int, meaning: str) -> Self:
        number = super().__new__(cls, value)
        number.meaning = meaning
        return number


class ExitCode(_MeaningfulInt, ReprEnum):
    """Result of a command."""

    OK = 0, "Success."
    KEYS_FAILED = 1, "`lookup`: a key has no answer. `doctor`: a finding is an error."
    USAGE = 64, "The command line is invalid."
    DATA = 65, "A key or the request does not fit the dimension."
    NO_INPUT = 66, "The dimension does not exist."
    UNAVAILABLE = 69, "No sidecar responds at the endpoint."
    SOFTWARE = 70, "A query was refused, or a defect; the message has the reason."
    SYSTEM = 71, "A call of the operating system failed."
    TRY_AGAIN = 75, "Table, backend or sidecar are unavailable for now; try again later."
    NO_PERMISSION = 77, "The token is invalid, or the role may not read the table."
    CONFIG = 78, "The configuration is invalid."


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
