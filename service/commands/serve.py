"""`serve`: run the sidecar on its event loop until it is stopped."""

import asyncio
import gc
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from service.commands.configuration import NAME_IT, ConfigOption, chosen_settings
from service.resources.thread_limit import check_thread_limit, needed_threads


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


def serve(config: ConfigOption = None) -> None:
    """Run the sidecar until SIGTERM or SIGINT."""
    settings = chosen_settings(config, _log_example)
    # Before libraries start threads of their own: they do not say what they miss.
    check_thread_limit(needed_threads())
    # Here, so that no other command waits for the imports of all adapters.
    from service import app  # noqa: PLC0415

    # The modules live as long as the process. Every full collection would look at all of them, and
    # hold the event loop for some 30 ms.
    gc.freeze()
    run_on_event_loop(app.run(settings, file=config))


def _log_example(file: Path) -> None:
    # Here, as above.
    import structlog  # noqa: PLC0415

    from service.observability.logs import configure_logs  # noqa: PLC0415

    configure_logs(sys.stderr, level="info")
    structlog.get_logger().warning("serve.example_configuration", file=str(file), remedy=NAME_IT)
