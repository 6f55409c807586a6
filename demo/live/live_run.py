"""Live run: tables change while flights stream through the lookup joins."""

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
from demo.flights import data_package, flights
from demo.interrupt import Interrupt
from demo.live.changes import ChangeWriter, change_writer, planned_changes
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

DAY = dt.date(2013, 1, 2)  # the first day with flights to all missing airports
TRIGGER = "200 milliseconds"
NUMBER = "value"  # the column of the rate source
INTERVAL_S = 0.1  # between two commits
CHANGED_PLANES = 30
FIRST_BATCHES = 10  # before the first change: Spark is slow until it is warm
LAST_BATCHES = 2  # after the last change was seen: the second one starts after it
START_TIMEOUT_S = 60.0
LAST_TIMEOUT_S = 15.0
LOOK_INTERVAL_S = 0.1
PROGRESS_INTERVAL_S = 10.0


class StreamObserver:
    """Sink of the stream; Spark calls `on_batch` in a thread of its own."""

    def __init__(self, watched: frozenset[Key]) -> None:
        self._watched = watched
        self.sightings: list[Sighting] = []  # so far, in order
        self._between_batches = threading.Lock()
        self._is_closed = False

    def on_batch(self, frame: DataFrame, _number: int) -> None:
        """Record a micro-batch; ignored after `close`."""
        with self._between_batches:
            if self._is_closed:
                return
            enriched = frame.select(*COLUMNS).toArrow()
            self.sightings.append(sight(enriched, self._watched, emitted_s=time.time()))

    def close(self) -> None:
        """Wait for the running batch; stopping the query during a batch would make it fail."""
        with self._between_batches:
            self._is_closed = True


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A live run of `seconds` with a running session and sidecar."""

    session: SparkSession
    endpoint: str
    admin_dsn: str
    checkpoint: Path
    console: Console
    interrupt: Interrupt
    mode: Mode
    seconds: int

    def run(self) -> list[str]:
        """Change rows while flights are enriched, print the delays, and return the faults."""
        day = day_of_flights(flights())
        changes = planned_changes(
            busiest_planes(day, CHANGED_PLANES), count=round(self.seconds / INTERVAL_S)
        )
        observer = StreamObserver(watched_keys(changes))
        self.console.print(
            f"for {self.seconds} s planes change and missing airports are inserted, "
            "while flights are enriched"
        )
        with self._streaming(day, observer) as query:
            self._wait(query, lambda: len(observer.sightings) >= FIRST_BATCHES, START_TIMEOUT_S)
            with change_writer(self.admin_dsn, changes, interval_s=INTERVAL_S) as writer:
                self._watch(query, writer, observer)
            commits = writer.commits
            self._wait(
                query,
                lambda: not change_delays(commits, observer.sightings).unseen,
                LAST_TIMEOUT_S,
            )
            seen = len(observer.sightings) + LAST_BATCHES
            self._wait(query, lambda: len(observer.sightings) >= seen, LAST_TIMEOUT_S)
        live_report(self.console, change_delays(commits, observer.sightings), observer.sightings)
        return live_faults(commits, observer.sightings)

    @contextmanager
    def _streaming(self, day: pa.Table, observer: StreamObserver) -> Iterator[StreamingQuery]:
        repeated = flight_stream(self.session, day)
        enriched = enrich(repeated, self.endpoint, mode=self.mode, dimensions=FOLLOWED)
        query = (
            enriched.writeStream.foreachBatch(observer.on_batch)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(processingTime=TRIGGER)
            .start()
        )
        try:
            yield query
        finally:
            observer.close()
            query.stop()

    def _watch(self, query: StreamingQuery, writer: ChangeWriter, observer: StreamObserver) -> None:
        while not writer.has_ended:
            self._wait(query, lambda: writer.has_ended, PROGRESS_INTERVAL_S)
            sightings = observer.sightings
            records = sum(sighting.records for sighting in sightings)
            self.console.print(
                f"  {len(writer.commits):,} changes committed, "
                f"{records:,} flights enriched in {len(sightings):,} micro-batches"
            )

    def _wait(self, query: StreamingQuery, is_done: Callable[[], bool], timeout_s: float) -> None:
        """Wait until done or timed out; raises StreamingQueryException if the query failed."""
        deadline = time.monotonic() + timeout_s
        while not is_done() and time.monotonic() < deadline:
            if not query.isActive:
                query.awaitTermination()
            self.interrupt.check()
            time.sleep(LOOK_INTERVAL_S)


def flight_stream(session: SparkSession, day: pa.Table) -> DataFrame:
    """Return an endless stream of the flights; one partition is fastest for one day."""
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


def day_of_flights(all_flights: pa.Table) -> pa.Table:
    """Return the flights of the day with the columns that the stream needs."""
    is_that_day = pc.equal(all_flights["event_time"].cast(pa.date32()), pa.scalar(DAY))
    columns = ["flight_id", "event_time", "tailnum", "origin", "dest"]
    return all_flights.filter(is_that_day).select(columns).combine_chunks()


def busiest_planes(day: pa.Table, count: int) -> list[str]:
    """Return the planes of the data package with the most flights."""
    options = csv.ConvertOptions(include_columns=list(PLANES.key))
    known = csv.read_csv(data_package() / f"{PLANES.name}.csv", convert_options=options)
    flown = day.filter(pc.is_in(day["tailnum"], known["tailnum"].combine_chunks()))
    counted = flown.group_by("tailnum").aggregate([([], "count_all")])
    order = [("count_all", "descending"), ("tailnum", "ascending")]
    return counted.sort_by(order)["tailnum"].slice(0, count).to_pylist()
