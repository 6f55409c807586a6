"""Why a listener cannot be bound."""

import errno
import os

import pytest

from service.listeners import bind_fault

TAKEN = "another process listens there: stop it, or set listen.http to another port"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.EADDRINUSE, "x"), f"{os.strerror(errno.EADDRINUSE)}; {TAKEN}"),
        (OSError(errno.EACCES, "x"), os.strerror(errno.EACCES)),
        (OSError("no address"), "no address"),
    ],
)
def test_address_and_reason_are_told(error: OSError, reason: str) -> None:
    """The setting, its address and the reason; where another process has it, what to do."""
    fault = bind_fault("listen.http", "127.0.0.1:1", error)

    assert fault.faults == (f"listen.http: 127.0.0.1:1: {reason}",)
