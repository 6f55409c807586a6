"""Keeps libraries and adapters from logging while a command tells by itself what went wrong.

Not for the sidecar, whose log is for people.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

_LIBRARIES = ("aiokafka", "asyncio")
_NOTHING = logging.CRITICAL  # which nobody here uses


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Let nobody log meanwhile; all is as before in the end."""
    before = structlog.get_config()
    levels = {name: logging.getLogger(name).level for name in _LIBRARIES}
    structlog.configure(
        **{**before, "wrapper_class": structlog.make_filtering_bound_logger(_NOTHING)}
    )
    for name in _LIBRARIES:
        logging.getLogger(name).setLevel(_NOTHING)
    try:
        yield
    finally:
        structlog.configure(**before)
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
