"""Fixtures of several suites of the service."""

import logging
from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    """The log of the process is as before at the end."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level
    structlog.reset_defaults()
