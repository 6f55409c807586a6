"""The Python workers of the Spark that this process started, by process id.

Only theirs: other Sparks of the machine are left alone.
"""

import psutil

_DAEMON = "pyspark.daemon"


def python_workers() -> set[int]:
    """What the daemons have forked and what lives."""
    daemons = [each for each in psutil.Process().children(recursive=True) if _is_daemon(each)]
    return {each.pid for each in daemons if _is_daemon(each.parent())}


def _is_daemon(process: psutil.Process | None) -> bool:
    try:
        # A fork has the arguments of its parent.
        return process is not None and _DAEMON in process.cmdline()
    except psutil.NoSuchProcess:
        return False
