"""Thread limit check: starts and ends as many threads as the sidecar needs.

Libraries that cannot start a thread abort the process or hang, without a clear message.
"""

import os
import threading

from lookup_core.errors import ConfigurationError

_ARROW_FILES = 8  # Arrow's pool for reading files
_LOOP = 4  # file operations of the event loop
_WATCHDOG = 1


def needed_threads() -> int:
    """The greatest number of threads, without the main thread."""
    processors = os.cpu_count() or 1
    executor = min(32, processors + 4)  # asyncio's default
    return 2 * processors + executor + _ARROW_FILES + _LOOP + _WATCHDOG


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
