"""Whether the process may have the threads that it needs, before it relies on them.

Libraries that cannot start a thread end the process, or hang, with a message that nobody
understands. Only asks the system, by starting them; the threads that work are started later.
"""

import os
import threading

from lookup_core.errors import ConfigurationError

_OF_ARROW_FILES = 8  # its pool for reading files
_OF_LOOP = 4  # that of the event loop's own file operations
_OF_OURS = 1  # the watchdog


def needed_threads() -> int:
    """How many there may be at once beside the main thread."""
    processors = os.cpu_count() or 1
    of_executor = min(32, processors + 4)  # asyncio's default
    return 2 * processors + of_executor + _OF_ARROW_FILES + _OF_LOOP + _OF_OURS


def check_thread_limit(needed: int) -> None:
    """Raise ConfigurationError when fewer than so many threads can be started."""
    started = _started_at_once(needed)
    if started < needed:
        fault = (
            f"threads: the sidecar needs {needed} beside its main thread, the system allowed "
            f"{started}; raise the limit of processes (ulimit -u) or the pod's (pids.max)"
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
        pass  # the limit: how many there are says it
    finally:
        may_end.set()
        for thread in threads:
            thread.join()
    return len(threads)
