"""Demonstration: the order of its steps, from the database to the audit of the output."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from rich.console import Console

from demo.audit import audit
from demo.dimension import DIMENSIONS, FOLLOWED
from demo.embedded_kafka.kafka_broker import kafka_libraries
from demo.flights import FILES, Workspace, write_flights
from demo.interrupt import Interrupt
from demo.live.changelog import Settings, running_changelog
from demo.live.live_run import LiveRun
from demo.postgres import READER, Postgres, QueryLog, running_postgres
from demo.report import report, show_progress
from demo.sidecar import Sidecar, running_sidecar
from demo.steady_lookups import steady_lookups
from demo.stream import ORDER, FileStream, Mode, spark_session
from demo.totals import count_totals

LOOK_INTERVAL_S = 1
LONG_TTL = {"ttl": "1h", "negative_ttl": "1h"}  # only the changelog makes changes visible


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One run of the demonstration."""

    workspace: Workspace
    console: Console
    interrupt: Interrupt
    mode: Mode = "unordered"
    limit: int | None = None  # number of flights; None: all
    live_seconds: int | None = None  # how long tables change afterwards; None: they do not
    stays_up: bool = False

    def run(self) -> list[str]:
        """Run all steps, print the results, and return the faults.

        All processes are stopped at the end, also after an error or Ctrl-C.
        """
        self.workspace.prepare()
        names = ", ".join(each.name for each in DIMENSIONS)
        self.console.print(f"joins flights from New York with tables of PostgreSQL: {names}")
        is_live = self.live_seconds is not None
        with ExitStack() as stack:
            with self._step("flights written as Parquet"):
                flights = write_flights(self.workspace.flights, limit=self.limit)
            with self._step("PostgreSQL started and filled"):
                postgres = stack.enter_context(running_postgres(has_logical_wal=is_live))
            changelogs = self._start_changelog(postgres, stack) if is_live else {}
            with self._step("sidecar ready"):
                settings = _sidecar_settings(postgres.reader_dsn, changelogs)
                sidecar = stack.enter_context(running_sidecar(settings, self.workspace.root))
            self.console.print(f"status page, while this runs: {sidecar.url}/")
            faults = self._stream(flights, sidecar, postgres)
            self._print_verdict(faults)
            if self.stays_up:
                self._stay_up(flights, sidecar)
            else:
                self.console.print("The sidecar ends now; make demo SERVE=1 keeps it running.")
                self.console.print("The program of the stream is demo/stream.py.")
        return faults

    def _start_changelog(self, postgres: Postgres, stack: ExitStack) -> Settings:
        libraries = kafka_libraries(say=lambda what: self.console.print(f"  {what}"))
        with self._step("Kafka and Debezium started"):
            return stack.enter_context(
                running_changelog(self.workspace.changelog, postgres, FOLLOWED, libraries=libraries)
            )

    def _stream(self, flights: pa.Table, sidecar: Sidecar, postgres: Postgres) -> list[str]:
        log = QueryLog(postgres.log)
        with ExitStack() as stack:
            with self._step("Spark started"):
                spark = spark_session(self.workspace.spark_log, interrupt=self.interrupt)
                session = stack.enter_context(spark)
            workspace = self.workspace
            first = FileStream(workspace.enriched, workspace.checkpoint, FILES // 2)
            self._enrich(session, sidecar, first, total=flights.num_rows, state="empty cache")
            self.console.print(f"{self.mode}: {ORDER[self.mode]}")
            faults = self._audit(flights, sidecar, log)
            again = FileStream(workspace.again, workspace.again_checkpoint, FILES)
            self._enrich(session, sidecar, again, total=flights.num_rows, state="warm cache")
            faults += self._differences()
            if self.live_seconds is None:
                return faults
            live = LiveRun(
                session=session,
                endpoint=sidecar.endpoint,
                admin_dsn=postgres.admin_dsn,
                checkpoint=self.workspace.live_checkpoint,
                console=self.console,
                interrupt=self.interrupt,
                mode=self.mode,
                seconds=self.live_seconds,
            )
            return [*faults, *live.run()]

    def _enrich(
        self,
        session: SparkSession,
        sidecar: Sidecar,
        stream: FileStream,
        *,
        total: int,
        state: str,
    ) -> None:
        endpoint, flights = sidecar.endpoint, self.workspace.flights
        query = stream.start(session, flights, endpoint=endpoint, mode=self.mode)
        seconds = show_progress(query, total, self.console, check=self.interrupt.check)
        self.console.print(
            f"{state}: {total:,} flights through {len(DIMENSIONS)} lookups in one pass"
            f" in {seconds:.1f} s: {total / seconds:,.0f} flights/s"
        )

    def _differences(self) -> list[str]:
        """The faults of the warm stream, whose rows must be those of the first one."""
        status = [dimension.status_column for dimension in DIMENSIONS]
        first, again = (
            pq.read_table(folder).sort_by("flight_id").drop_columns(status)
            for folder in (self.workspace.enriched, self.workspace.again)
        )
        return [] if first.equals(again) else ["the warm stream gave other rows than the first"]

    def _audit(self, flights: pa.Table, sidecar: Sidecar, log: QueryLog) -> list[str]:
        with self._step("output read and compared"):
            enriched = pq.read_table(self.workspace.enriched).sort_by("flight_id")
            metrics = sidecar.get("/metrics")
            queries = log.count(READER, [dimension.name for dimension in DIMENSIONS])
            totals = [
                count_totals(each, enriched, queries=queries[each.name], metrics=metrics)
                for each in DIMENSIONS
            ]
            faults = audit(flights, enriched, totals)
        report(self.console, enriched, totals)
        path = self.workspace.enriched
        self.console.print(f"all enriched flights, as Parquet: {path}", soft_wrap=True)
        return faults

    def _print_verdict(self, faults: list[str]) -> None:
        for fault in faults:
            self.console.print(f"WRONG: {fault}", style="red")
        if not faults:
            right = "Checked: every flight occurs once, and all values and totals agree."
            self.console.print(right, style="green")

    def _stay_up(self, flights: pa.Table, sidecar: Sidecar) -> None:
        # Ctrl-C may arrive as soon as the last line is printed.
        try:
            with steady_lookups(sidecar.endpoint, flights) as watch:
                self.console.print(
                    "Some lookups continue, so that the page shows activity.",
                    f"status page: {sidecar.url}/",
                    f"metrics: {sidecar.url}/metrics",
                    f"socket: {sidecar.socket}",
                    "Ctrl-C stops everything.",
                    sep="\n",
                )
                while True:
                    watch(LOOK_INTERVAL_S)
        except KeyboardInterrupt:
            self.console.print("stopping")

    @contextmanager
    def _step(self, what: str) -> Iterator[None]:
        started_s = time.monotonic()
        yield
        self.console.print(f"  {what} ({time.monotonic() - started_s:.1f} s)")


def _sidecar_settings(dsn: str, changelogs: Settings) -> dict[str, Any]:
    dimensions: dict[str, Any] = {
        dimension.name: {
            "source": {"kind": "postgres", "dsn": dsn, "table": f"public.{dimension.name}"},
            "key": list(dimension.key),
        }
        for dimension in DIMENSIONS
    }
    for name, changelog in changelogs.items():
        dimensions[name] |= {"refresh": {"changelog": changelog}, "cache": LONG_TTL}
    return {"dimensions": dimensions}
