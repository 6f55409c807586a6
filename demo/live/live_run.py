"""The live part of the demonstration: tables change, and the stream shows it soon.

Puts its parts in order; each does its work in its own module.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

from demo.dimension import FOLLOWED
from demo.flights import flights as all_flights
from demo.interrupt import Interrupt
from demo.live.change_delays import change_delays, live_faults
from demo.live.change_writer import ChangeWriter
from demo.live.day_of_flights import busiest_planes, day_of_flights
from demo.live.flight_stream import flight_stream, started
from demo.live.live_report import live_report
from demo.live.planned_change import planned_changes
from demo.live.sighting import watched_keys
from demo.live.stream_observer import StreamObserver
from demo.stream import Mode, enrich

INTERVAL_S = 0.1  # between two commits
PLANES = 30  # so many are changed in turn
FIRST_BATCHES = 10  # before the first change; Spark is slow until it is warm
LAST_BATCHES = 2  # after the last change was seen: the second one began after it
START_TIMEOUT_S = 60.0
LAST_TIMEOUT_S = 15.0
LOOK_INTERVAL_S = 0.1
WORD_INTERVAL_S = 10.0  # between two lines that say how far it is


@dataclass(frozen=True, slots=True)
class LiveRun:
    """One run of so many seconds, with a session and a sidecar that are there."""

    session: SparkSession
    endpoint: str
    admin_dsn: str
    checkpoint: Path
    console: Console
    interrupt: Interrupt
    mode: Mode
    seconds: int

    def run(self) -> list[str]:
        """Change rows while flights are enriched, print how soon it showed, return the faults."""
        day = day_of_flights(all_flights())
        changes = planned_changes(
            busiest_planes(day, PLANES), count=round(self.seconds / INTERVAL_S)
        )
        observer = StreamObserver(watched_keys(changes))
        self.console.print(
            f"for {self.seconds} s planes change, and missing airports come, "
            "while flights are enriched"
        )
        with self._streaming(day, observer) as query:
            self._wait(query, lambda: len(observer.sightings) >= FIRST_BATCHES, START_TIMEOUT_S)
            with ChangeWriter(self.admin_dsn, changes, interval_s=INTERVAL_S) as writer:
                self._watch(query, writer, observer)
            commits = writer.commits
            self._wait(
                query,
                lambda: not change_delays(commits, observer.sightings).unseen,
                LAST_TIMEOUT_S,
            )
            seen = len(observer.sightings) + LAST_BATCHES
            self._wait(query, lambda: len(observer.sightings) >= seen, LAST_TIMEOUT_S)
        sightings = observer.sightings
        live_report(self.console, change_delays(commits, sightings), sightings)
        return live_faults(commits, sightings)

    @contextmanager
    def _streaming(self, day: pa.Table, observer: StreamObserver) -> Iterator[StreamingQuery]:
        flights = flight_stream(self.session, day)
        enriched = enrich(flights, self.endpoint, mode=self.mode, dimensions=FOLLOWED)
        query = started(enriched, self.checkpoint, observer.on_batch)
        try:
            yield query
        finally:
            observer.close()
            query.stop()

    def _watch(self, query: StreamingQuery, writer: ChangeWriter, observer: StreamObserver) -> None:
        while not writer.has_ended:
            self._wait(query, lambda: writer.has_ended, WORD_INTERVAL_S)
            sightings = observer.sightings
            records = sum(sighting.records for sighting in sightings)
            self.console.print(
                f"  {len(writer.commits):,} changes committed, "
                f"{records:,} flights enriched in {len(sightings):,} micro-batches"
            )

    def _wait(self, query: StreamingQuery, is_so: Callable[[], bool], timeout_s: float) -> None:
        """Until it is so, or for that long; raises StreamingQueryException if the query failed."""
        deadline = time.monotonic() + timeout_s
        while not is_so() and time.monotonic() < deadline:
            if not query.isActive:
                query.awaitTermination()
            self.interrupt.check()
            time.sleep(LOOK_INTERVAL_S)
