"""Silence while a command tells by itself what went wrong."""

import logging

import structlog
from structlog.testing import capture_logs

from service.commands.doctor_io import quiet_libraries


def test_nobody_logs_meanwhile() -> None:
    """Neither our own logs nor those of libraries; afterwards all is as before."""
    log, library = structlog.get_logger(), logging.getLogger("aiokafka")
    with capture_logs() as events:
        with quiet_libraries():
            log.error("hidden")
            assert not library.isEnabledFor(logging.ERROR)
        log.error("shown")

    assert [event["event"] for event in events] == ["shown"]
    assert library.isEnabledFor(logging.ERROR)
