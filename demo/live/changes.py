"""Changes of the live run: planned, then committed by a separate writer."""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import psycopg

from demo.dimension import AIRPORTS, PLANES

PLANES_OF_A_CHANGE = 3
FIRST_VERSION = 1_000_000  # as seats of a plane: no real one has so many
ABSENT, ARRIVED = 0, 1  # the versions of an airport, before and after it is inserted
MISSING_AIRPORTS = {  # flights go there, but the data package does not know them
    "BQN": ("Rafael Hernandez", 18.4949, -67.1294, 237, -4, "N", "America/Puerto_Rico"),
    "SJU": ("Luis Munoz Marin Intl", 18.4394, -66.0018, 9, -4, "N", "America/Puerto_Rico"),
    "PSE": ("Mercedita", 18.0083, -66.563, 29, -4, "N", "America/Puerto_Rico"),
    "STT": ("Cyril E King", 18.3373, -64.9734, 23, -4, "N", "America/St_Thomas"),
}


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """One transaction: rows of one table, all with the same new version."""

    dimension: str
    keys: tuple[str, ...]
    version: int  # greater than that of each earlier change of the same rows


def planned_changes(planes: Sequence[str], count: int) -> list[PlannedChange]:
    """So many updates of planes, in turn, and the airports' insertions, evenly between them."""
    changes = [
        PlannedChange(PLANES.name, _turn(planes, number), FIRST_VERSION + number)
        for number in range(count)
    ]
    step = count // (len(MISSING_AIRPORTS) + 1)
    for number, airport in enumerate(MISSING_AIRPORTS, start=1):
        changes.insert(number * (step + 1) - 1, PlannedChange(AIRPORTS.name, (airport,), ARRIVED))
    return changes


def _turn(planes: Sequence[str], number: int) -> tuple[str, ...]:
    start = number * PLANES_OF_A_CHANGE
    places = range(start, start + PLANES_OF_A_CHANGE)
    return tuple(planes[place % len(planes)] for place in places)


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
