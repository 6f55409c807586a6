"""Engine tests run in virtual time: all that they wait for is on their own loop."""

import asyncio
from collections.abc import Callable, Iterator, Mapping

import pytest
from structlog.testing import capture_logs

from tools.virtual_time import LOOP_FACTORIES


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop of every test in this folder."""
    return LOOP_FACTORIES


@pytest.fixture(autouse=True)
def _logs() -> Iterator[None]:
    """Log lines stay values: to render a traceback takes longer than the test."""
    with capture_logs():
        yield
