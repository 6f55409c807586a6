"""How far the stream is, and what a person sees of it: a bar on a terminal, lines elsewhere.

Only looks on; the query does not wait for it.
"""

import time
from collections.abc import Callable

import rich.progress
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

LOOK_INTERVAL_S = 1


def show_progress(
    query: StreamingQuery, total: int, console: Console, *, check: Callable[[], None]
) -> float:
    """Show the progress until the query ends, and return the seconds that it took.

    Raises StreamingQueryException if the query failed, and whatever `check` does, each second.
    """
    started_s = time.monotonic()
    with _bar(console) as bar:
        task = bar.add_task("enriching", total=total)
        shown = 0
        has_ended = False
        while not has_ended:
            check()
            has_ended = bool(query.awaitTermination(LOOK_INTERVAL_S))
            reached = _records_read(query)
            bar.update(task, completed=reached)
            if reached != shown and not console.is_terminal:
                console.print(f"  {reached:,} of {total:,} flights")
            shown = reached
    return time.monotonic() - started_s


def _records_read(query: StreamingQuery) -> int:
    # A micro-batch may be reported twice.
    return sum({report.batchId: report.numInputRows for report in query.recentProgress}.values())


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
