"""`serve`: the sidecar on its event loop, until a signal stops it.

Libraries that cannot start a thread abort the process or hang, without a clear message: the limit
of threads is checked before.
"""

import asyncio
import gc
import os
import stat
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

import typer

from lookup_core.errors import ConfigurationError
from service.bound_sockets import bound_sockets
from service.commands.configuration import NAME_IT, ConfigOption
from service.config.loading import EMBEDDED, load_settings

_ARROW_THREADS = 8  # Arrow's pool for reading files
_LOOP_THREADS = 4  # file operations of the event loop
_WATCHDOG_THREADS = 1


def needed_threads() -> int:
    """The greatest number of threads, without the main thread."""
    processors = os.cpu_count() or 1
    executor = min(32, processors + 4)  # asyncio's default
    return 2 * processors + executor + _ARROW_THREADS + _LOOP_THREADS + _WATCHDOG_THREADS


def check_thread_limit(needed: int) -> None:
    """Raise ConfigurationError if fewer than `needed` threads can be started."""
    started = _started_at_once(needed)
    if started < needed:
        fault = (
            f"threads: the sidecar needs {needed} besides its main thread, the system allows "
            f"{started}; raise the limit of processes (ulimit -u) or of the pod (pids.max)"
        )
        raise ConfigurationError([fault])


def _started_at_once(wanted: int) -> int:
    may_end = threading.Event()
    threads: list[threading.Thread] = []
    try:
        for _ in range(wanted):
            thread = threading.Thread(target=may_end.wait, daemon=True)
            thread.start()
            threads.append(thread)
    except RuntimeError:
        pass  # the limit is reached
    finally:
        may_end.set()
        for thread in threads:
            thread.join()
    return len(threads)


def run_on_event_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on a new event loop; uvloop if it is installed.

    Raises the coroutine's error. A task group wraps even a single error: it is unwrapped here.
    """
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(main)
    except ExceptionGroup as group:
        error: Exception = group
        while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        raise error from group


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop  # noqa: PLC0415  # not available on every platform
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def serve(
    config: ConfigOption = None,
    *,
    until_eof: Annotated[
        bool,
        typer.Option(
            "--until-eof",
            help="Stop also at the end of standard input, which is a pipe.",
        ),
    ] = False,
) -> None:
    """Run the sidecar until SIGTERM, SIGINT or SIGHUP."""
    if until_eof and not _is_pipe(sys.stdin.fileno()):
        raise ConfigurationError(
            ["--until-eof: standard input is no pipe; let the process that starts it hold one"]
        )
    if config is None:
        # Imported here: only this case logs before the sidecar runs.
        import structlog  # noqa: PLC0415

        from service.observability.logs import configure_logs  # noqa: PLC0415

        configure_logs(sys.stderr, level="info")
        log = structlog.get_logger()
        log.warning("serve.example_configuration", file=str(EMBEDDED), remedy=NAME_IT)
    settings = load_settings(config, os.environ)
    # Before libraries start threads: their errors do not name the limit.
    check_thread_limit(needed_threads())
    with bound_sockets(settings.listen) as sockets:
        # Imported here: other commands must not wait for all connectors, nor a fault of a socket.
        from service import app  # noqa: PLC0415

        # Objects of modules are never garbage. Scanning them in each full collection would block
        # the event loop for about 30 ms.
        gc.freeze()
        run_on_event_loop(app.run(settings, sockets, file=config, until_eof=until_eof))


def _is_pipe(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
