"""A `mapInArrow` function that spoils the first attempt of each partition, after some of its rows.

What Spark does about it is Spark's business; later attempts let everything pass.
"""

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
    """A partition's first attempt ends with its way to end; a file tells that it came so far."""

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
    """As a defect of the user's, or a lost file of a shuffle, would."""
    raise RuntimeError("the first attempt fails")


def lose_executor() -> NoReturn:
    """Its JVM is killed, as on a node that is lost: it told nobody, and nor can we."""
    daemon = psutil.Process().parent()
    executor = None if daemon is None else daemon.parent()
    assert executor is not None
    executor.kill()
    while True:  # until Spark's daemon is told by its broken pipe
        signal.pause()
