"""Report and progress of the demonstration on the terminal."""

import time
from collections.abc import Callable, Sequence
from datetime import datetime

import pyarrow as pa
import rich.progress
from pyspark.sql.streaming.query import StreamingQuery
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from demo.totals import FAILED, HIT, Totals

LOOK_INTERVAL_S = 0.2
SAMPLES = 5
SAMPLE_LEGEND = ("-: the table has no row for this flight, or the row has no value",)
LEGEND = (
    "hits: the sidecar's cache had the row",
    "fetched: the row was not cached when the flight came; flights of one key share a query",
    "missing: the table has no row with this key, or the flight has no key",
    "one per record: the number of queries if each flight with a key had its own",
)
SAMPLE_COLUMNS = {  # {title: (column, width)}; 80 characters with the gaps
    "departs (UTC)": ("event_time", 16),
    "airline": ("airline_name", 16),
    "tail": ("tailnum", 6),
    "plane": ("plane_model", 10),
    "to": ("dest", 3),
    "airport": ("dest_name", 12),
    "°F": ("weather_temp", 4),
}


def show_progress(
    query: StreamingQuery, total: int, console: Console, *, check: Callable[[], None]
) -> float:
    """Show the progress until the query ends; return the seconds that it took.

    Calls `check` all the time and passes on its exceptions. Raises StreamingQueryException if the
    query failed.
    """
    started_s = time.monotonic()
    with _bar(console) as bar:
        task = bar.add_task("enriching", total=total)
        shown = 0
        has_ended = False
        while not has_ended:
            check()
            # Its hint is too narrow: parts of a second are accepted.
            has_ended = bool(query.awaitTermination(LOOK_INTERVAL_S))  # type: ignore[arg-type]
            # Spark may report a micro-batch twice.
            read = {report.batchId: report.numInputRows for report in query.recentProgress}
            reached = sum(read.values())
            bar.update(task, completed=reached)
            if reached != shown and not console.is_terminal:
                console.print(f"  {reached:,} of {total:,} flights")
            shown = reached
    return time.monotonic() - started_s


def _bar(console: Console) -> rich.progress.Progress:
    return rich.progress.Progress(
        rich.progress.TextColumn("  {task.description}"),
        rich.progress.BarColumn(),
        rich.progress.MofNCompleteColumn(),
        rich.progress.TextColumn("flights"),
        rich.progress.TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )


def report(console: Console, enriched: pa.Table, totals: Sequence[Totals]) -> None:
    """Print five enriched rows and the figures of each dimension."""
    for table, legend in ((_samples(enriched), SAMPLE_LEGEND), (_figures(totals), LEGEND)):
        console.print()
        console.print(table)
        console.print(*legend, sep="\n")
    shared, keys = (sum(each) for each in zip(*map(_keys, totals), strict=True))
    sent = f"{shared:,} in shared memory, {keys - shared:,} by the sidecar"
    console.print(f"distinct keys of batches: {keys:,} looked up, {sent}")
    console.print()


def _keys(totals: Totals) -> tuple[int, int]:
    return totals.shared_keys, sum(totals.sidecar_outcomes.values())


def _samples(enriched: pa.Table) -> Table:
    table = plain_table(f"{SAMPLES} of the enriched flights")
    for title, (_, width) in SAMPLE_COLUMNS.items():
        table.add_column(title, overflow="ellipsis", no_wrap=True, width=width)
    step = max(1, enriched.num_rows // SAMPLES)
    chosen = enriched.take(pa.array(range(0, enriched.num_rows, step)[:SAMPLES]))
    for row in chosen.select([column for column, _ in SAMPLE_COLUMNS.values()]).to_pylist():
        table.add_row(*map(_cell, row.values()))
    return table


def _figures(totals: Sequence[Totals]) -> Table:
    table = plain_table("Results of the lookups, and database queries")
    table.show_footer = True
    columns = {
        "records": [figures.records for figures in totals],
        "hits": [figures.records_with(*HIT) for figures in totals],
        "fetched": [figures.records_with("fetched") for figures in totals],
        "missing": [figures.records_with("missing") for figures in totals],
        "errors": [figures.records_with(*FAILED) for figures in totals],
        "database\nqueries": [figures.queries for figures in totals],
        "one per\nrecord": [figures.with_key for figures in totals],
    }
    table.add_column("dimension", "all", no_wrap=True)
    for title, values in columns.items():
        table.add_column(title, f"{sum(values):,}", justify="right")
    for figures, *values in zip(totals, *columns.values(), strict=True):
        table.add_row(figures.dimension, *(f"{value:,}" for value in values))
    return table


def plain_table(title: str) -> Table:
    """Return an empty table in the style of the demonstration."""
    return Table(
        title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0)
    )


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case datetime():
            return f"{value:%Y-%m-%d %H:%M}"
        case float():
            return f"{value:.1f}"
        case _:
            return str(value)
