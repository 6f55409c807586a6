"""Live run: tables change while the stream shows it."""

import datetime as dt
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

from demo.dimension import FOLLOWED, PLANES
from demo.flights import data_package
from demo.flights import flights as all_flights
from demo.interrupt import Interrupt
from demo.live.changes import ChangeWriter, planned_changes
from demo.live.live_report import (
    COLUMNS,
    Key,
    Sighting,
    change_delays,
    live_faults,
    live_report,
    sight,
    watched_keys,
)
from demo.stream import Mode, enrich


class StreamObserver:
    """The end of the stream; Spark calls it in a thread of its own, everybody else reads."""

    def __init__(self, watched: frozenset[Key]) -> None:
        self._watched = watched
        self._sightings: list[Sighting] = []
        self._between_batches = threading.Lock()
        self._is_closed = False

    @property
    def sightings(self) -> list[Sighting]:
        """What was seen so far, in this order."""
        return list(self._sightings)

    def on_batch(self, frame: DataFrame, _number: int) -> None:
        """Take the records of a micro-batch; nothing once it is closed."""
        with self._between_batches:
            if self._is_closed:
                return
            enriched = frame.select(*COLUMNS).toArrow()
            self._sightings.append(sight(enriched, self._watched, emitted_s=time.time()))

    def close(self) -> None:
        """Wait until no batch is under way; the query can be stopped then without a failure."""
        with self._between_batches:
            self._is_closed = True


TRIGGER = "200 milliseconds"
NUMBER = "value"  # what the source counts in


def flight_stream(session: SparkSession, day: pa.Table) -> DataFrame:
    """The flights, again and again, in one partition: so few are through soonest in one task."""
    numbers = (
        session.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", day.num_rows)
        .option("numPartitions", 1)
        .load()
    )
    schema = session.createDataFrame(day.slice(0, 1)).schema

    def flown(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            places = pa.array(batch.column(NUMBER).to_numpy() % day.num_rows)
            yield from day.take(places).combine_chunks().to_batches()

    return numbers.select(NUMBER).mapInArrow(flown, schema)


def started(
    enriched: DataFrame, checkpoint: Path, on_batch: Callable[[DataFrame, int], None]
) -> StreamingQuery:
    """Start the stream; each micro-batch is handed to `on_batch`, in a thread of Spark."""
    return (
        enriched.writeStream.foreachBatch(on_batch)
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime=TRIGGER)
        .start()
    )


DAY = dt.date(2013, 1, 2)  # the first one on which all missing airports are flown to


def day_of_flights(flights: pa.Table) -> pa.Table:
    """The flights of the day, with the columns that the stream needs."""
    is_that_day = pc.equal(flights["event_time"].cast(pa.date32()), pa.scalar(DAY))
    columns = ["flight_id", "event_time", "tailnum", "origin", "dest"]
    return flights.filter(is_that_day).select(columns).combine_chunks()


def busiest_planes(day: pa.Table, count: int) -> list[str]:
    """The planes that fly most often, of those that the data package knows."""
    options = csv.ConvertOptions(include_columns=list(PLANES.key))
    known = csv.read_csv(data_package() / f"{PLANES.name}.csv", convert_options=options)
    flown = day.filter(pc.is_in(day["tailnum"], known["tailnum"].combine_chunks()))
    counted = flown.group_by("tailnum").aggregate([([], "count_all")])
    order = [("count_all", "descending"), ("tailnum", "ascending")]
    return counted.sort_by(order)["tailnum"].slice(0, count).to_pylist()


INTERVAL_S = 0.1  # between two commits
CHANGED_PLANES = 30  # so many are changed in turn
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
            busiest_planes(day, CHANGED_PLANES), count=round(self.seconds / INTERVAL_S)
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
