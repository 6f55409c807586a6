"""Exit codes for errors."""

import os

import pytest

from lookup_core.errors import (
    BackendError,
    ConfigurationError,
    ErrorCode,
    InvalidRequest,
    SidecarUnreachable,
    SidelookError,
)
from service.commands.exit_code import ExitCode, exit_code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigurationError(["a"]), ExitCode.CONFIG),
        (SidecarUnreachable("e", "r"), ExitCode.UNAVAILABLE),
        (InvalidRequest(ErrorCode.UNKNOWN_DIMENSION, "d"), ExitCode.NO_INPUT),
        (InvalidRequest(ErrorCode.UNAUTHORIZED, "d"), ExitCode.NO_PERMISSION),
        (InvalidRequest(ErrorCode.KEY_TYPE, "d"), ExitCode.DATA),
        (BackendError(ErrorCode.OVERLOADED, "d"), ExitCode.TRY_AGAIN),
        (BackendError(ErrorCode.INTERNAL, "d"), ExitCode.SOFTWARE),
    ],
)
def test_each_consequence_has_its_code(error: SidelookError, code: ExitCode) -> None:
    """Scripts tell a wrong question from a missing sidecar and from one that is busy."""
    assert exit_code(error) is code


def test_codes_are_those_of_sysexits() -> None:
    """The numbers are the ones that other programs use."""
    assert ExitCode.USAGE == os.EX_USAGE
    assert ExitCode.DATA == os.EX_DATAERR
    assert ExitCode.NO_INPUT == os.EX_NOINPUT
    assert ExitCode.UNAVAILABLE == os.EX_UNAVAILABLE
    assert ExitCode.SOFTWARE == os.EX_SOFTWARE
    assert ExitCode.SYSTEM == os.EX_OSERR
    assert ExitCode.TRY_AGAIN == os.EX_TEMPFAIL
    assert ExitCode.NO_PERMISSION == os.EX_NOPERM
    assert ExitCode.CONFIG == os.EX_CONFIG
