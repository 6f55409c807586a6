"""Changes of the live run: planned, then committed by a separate writer."""

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg

from demo.dimension import AIRPORTS, PLANES

PLANES_PER_CHANGE = 3
FIRST_VERSION = 1_000_000  # as seats of a plane; larger than any real number of seats
ABSENT, ARRIVED = 0, 1  # versions of an airport before and after its insertion
MISSING_AIRPORTS = {  # destinations without a row in the data package
    "BQN": ("Rafael Hernandez", 18.4949, -67.1294, 237, -4, "N", "America/Puerto_Rico"),
    "SJU": ("Luis Munoz Marin Intl", 18.4394, -66.0018, 9, -4, "N", "America/Puerto_Rico"),
    "PSE": ("Mercedita", 18.0083, -66.563, 29, -4, "N", "America/Puerto_Rico"),
    "STT": ("Cyril E King", 18.3373, -64.9734, 23, -4, "N", "America/St_Thomas"),
}
UPDATE = "UPDATE planes SET seats = %s WHERE tailnum = ANY(%s)"
INSERT = "INSERT INTO airports VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """One transaction: rows of one table, all with the same new version."""

    dimension: str
    keys: tuple[str, ...]
    version: int  # greater than in all earlier changes of the same rows


@dataclass(frozen=True, slots=True)
class Commit:
    """A committed change."""

    change: PlannedChange
    committed_s: float  # since the epoch, before COMMIT was sent


def planned_changes(planes: Sequence[str], count: int) -> list[PlannedChange]:
    """Return `count` updates of planes, in turn, with the airports evenly between them."""
    changes = []
    for number in range(count):
        start = number * PLANES_PER_CHANGE
        places = range(start, start + PLANES_PER_CHANGE)
        keys = tuple(planes[place % len(planes)] for place in places)
        changes.append(PlannedChange(PLANES.name, keys, FIRST_VERSION + number))
    step = count // (len(MISSING_AIRPORTS) + 1)
    for number, airport in enumerate(MISSING_AIRPORTS, start=1):
        changes.insert(number * (step + 1) - 1, PlannedChange(AIRPORTS.name, (airport,), ARRIVED))
    return changes


@dataclass(frozen=True, slots=True)
class ChangeWriter:
    """A thread that commits changes."""

    commits: list[Commit]  # so far
    _writing: Future[None]

    @property
    def has_ended(self) -> bool:
        """Whether the thread has ended."""
        return self._writing.done()


@contextmanager
def change_writer(
    dsn: str, changes: Sequence[PlannedChange], *, interval_s: float
) -> Iterator[ChangeWriter]:
    """Commit one change per interval until the block ends, which raises the thread's error."""
    commits: list[Commit] = []
    is_stopped = threading.Event()

    def write() -> None:
        with psycopg.connect(dsn) as connection:
            for change in changes:
                if is_stopped.wait(interval_s):
                    return
                _execute(connection, change)
                committed_s = time.time()
                connection.commit()
                commits.append(Commit(change, committed_s))

    with ThreadPoolExecutor(1, thread_name_prefix="change-writer") as thread:
        writing = thread.submit(write)
        try:
            yield ChangeWriter(commits, writing)
        finally:
            is_stopped.set()
    writing.result()


def _execute(connection: psycopg.Connection[tuple[object, ...]], change: PlannedChange) -> None:
    if change.dimension == PLANES.name:
        connection.execute(UPDATE, [change.version, list(change.keys)])
        return
    for key in change.keys:
        connection.execute(INSERT, [key, *MISSING_AIRPORTS[key]])
