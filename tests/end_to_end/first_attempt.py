"""A `mapInArrow` function that ends the first attempt of each partition after some rows."""

import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import psutil
import pyarrow as pa
from pyspark import TaskContext


@dataclass(frozen=True, slots=True)
class FirstAttempt:
    """Ends the first attempt of each partition in its own way, and leaves a file with its name."""

    folder: Path
    ends: Sequence[Callable[[], NoReturn]]  # by partition

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches, unchanged."""
        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            yield batch
            if context.attemptNumber() == 0:
                end = self.ends[context.partitionId()]
                (self.folder / end.__name__).touch()
                end()


def fail() -> NoReturn:
    """Fail the task."""
    raise RuntimeError("the first attempt fails")


def lose_executor() -> NoReturn:
    """Kill the JVM of the executor, as on a lost node."""
    daemon = psutil.Process().parent()
    executor = None if daemon is None else daemon.parent()
    assert executor is not None
    executor.kill()
    while True:  # until Spark's daemon reads its broken pipe
        signal.pause()
