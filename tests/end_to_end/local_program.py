"""A driver with a local sidecar: prints its process id, and how it ends with the session.

With the argument `hold` it prints only the id, and waits to be killed. With `fork` a forked child
waits, too, and its id is printed second.
"""

import os
import signal
import sys

from pyspark.sql import SparkSession

from spark_client import Sidecar
from tools.processes.until import until


def main(config: str, *words: str) -> None:
    """Start the sidecar; stop the session, or hold it."""
    if words in {("hold",), ("fork",)}:
        dims = Sidecar.local(config)
        child = os.fork() if words == ("fork",) else None
        if child != 0:
            ids = [dims.process.pid] if child is None else [dims.process.pid, child]
            sys.stdout.write("".join(f"{each}\n" for each in ids))
            sys.stdout.flush()
        signal.pause()
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    session = builder.getOrCreate()
    dims = Sidecar.local(config)
    session.stop()
    until(lambda: not os.path.lexists(dims.url.removeprefix("unix://")))
    sys.stdout.write(f"{dims.process.pid}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
