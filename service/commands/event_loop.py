"""The event loop that the sidecar runs on: uvloop where it is installed, else the standard one.

Decides nothing about signals; the coroutine ends when it wants to.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


def run_on_event_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run the coroutine to its end on a loop of its own; raises what it raises.

    A task group wraps even a lone error; that one comes out unwrapped, as the caller knows it.
    """
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(main)
    except ExceptionGroup as group:
        raise _lone_error(group) from group


def _lone_error(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop  # noqa: PLC0415  # not there on every platform
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop
