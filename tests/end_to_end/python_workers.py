"""The Python workers of the Spark that this process started, by process id.

Only theirs: other Sparks of the machine are left alone.
"""

import psutil

_DAEMON = "pyspark.daemon"


def python_workers() -> set[int]:
    """What the daemons have forked and what lives."""
    return {each.pid for each in psutil.Process().children(recursive=True) if _is_worker(each)}


def _is_worker(process: psutil.Process) -> bool:
    try:
        # A fork has the arguments of its parent.
        return _is_daemon(process) and _is_daemon(process.parent())
    except psutil.NoSuchProcess:  # it has just ended
        return False


def _is_daemon(process: psutil.Process | None) -> bool:
    return process is not None and _DAEMON in process.cmdline()
