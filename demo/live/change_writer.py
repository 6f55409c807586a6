"""Somebody else's program that changes the tables, and knows nothing of Sidelook.

It carries out what was planned; when a change shows in the stream is for others to say.
"""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import psycopg

from demo.dimension import PLANES
from demo.live.planned_change import MISSING_AIRPORTS, PlannedChange

UPDATE = "UPDATE planes SET seats = %s WHERE tailnum = ANY(%s)"
INSERT = "INSERT INTO airports VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"


@dataclass(frozen=True, slots=True)
class Commit:
    """A change that was carried out."""

    change: PlannedChange
    committed_s: float  # since the epoch; before the word COMMIT was sent


class ChangeWriter:
    """Carries out the changes in a thread of its own, one each `interval_s`; leaving stops it.

    What fails in the thread is raised when it is left.
    """

    def __init__(self, dsn: str, changes: Sequence[PlannedChange], *, interval_s: float) -> None:
        self._dsn = dsn
        self._changes = changes
        self._interval_s = interval_s
        self._is_stopped = threading.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="change-writer")
        self._commits: list[Commit] = []
        self._writing: Future[None] | None = None

    @property
    def commits(self) -> list[Commit]:
        """What was carried out so far."""
        return list(self._commits)

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will come."""
        return self._writing is not None and self._writing.done()

    def __enter__(self) -> Self:
        self._writing = self._thread.submit(self._write)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_stopped.set()
        self._thread.shutdown()
        if self._writing is not None and error is None:
            self._writing.result()

    def _write(self) -> None:
        with psycopg.connect(self._dsn) as connection:
            for change in self._changes:
                if self._is_stopped.wait(self._interval_s):
                    return
                _execute(connection, change)
                committed_s = time.time()
                connection.commit()
                self._commits.append(Commit(change, committed_s))


def _execute(connection: psycopg.Connection[tuple[object, ...]], change: PlannedChange) -> None:
    if change.dimension == PLANES.name:
        connection.execute(UPDATE, [change.version, list(change.keys)])
        return
    for key in change.keys:
        connection.execute(INSERT, [key, *MISSING_AIRPORTS[key]])
