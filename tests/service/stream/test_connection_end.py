"""What a peer is told when its connection ends."""

import pytest
from aiohttp import WSCloseCode
from structlog.testing import capture_logs

from lookup_core.errors import ErrorCode, ProtocolViolation
from service.stream.connection import ConnectionEnd, ConnectionEnded, connection_end

VIOLATION = ProtocolViolation(ErrorCode.CREDIT_VIOLATION, "9 records on channel 1")


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (ConnectionEnded(WSCloseCode.GOING_AWAY, "draining"), (1001, "draining")),
        (VIOLATION, (1002, "credit_violation: 9 records on channel 1")),
        (TimeoutError(), (1013, "the peer reads nothing")),
        (ConnectionResetError(), (1000, "")),
        (ZeroDivisionError(), (1011, "a defect of the service")),
    ],
)
def test_each_error_has_its_code(error: Exception, end: tuple[int, str]) -> None:
    """Peers that broke a rule are told which; defects are not theirs to know."""
    found = connection_end(error, 3)

    assert (found.code, found.reason) == end


def test_violation_is_a_warning_with_its_code() -> None:
    """Whoever reads the log can count them by code; the rate is limited by it, too."""
    with capture_logs() as logs:
        connection_end(VIOLATION, 3)

    (entry,) = logs
    assert (entry["event"], entry["log_level"]) == ("stream.violation", "warning")
    assert (entry["connection"], entry["code"]) == (3, ErrorCode.CREDIT_VIOLATION)


def test_defect_is_logged_with_its_trace() -> None:
    """It is the only place where it can be seen."""
    defect = ZeroDivisionError()
    with capture_logs() as logs:
        connection_end(defect, 3)

    (entry,) = logs
    assert (entry["event"], entry["log_level"]) == ("stream.defect", "error")
    assert entry["exc_info"] is defect


def test_long_reason_is_cut_to_fit() -> None:
    """A close frame is small, and its reason must be UTF-8."""
    assert ConnectionEnd(WSCloseCode.OK, "é" * 100).message == ("é" * 60).encode()
    assert ConnectionEnd(WSCloseCode.OK, "x" + "é" * 100).message == ("x" + "é" * 59).encode()
