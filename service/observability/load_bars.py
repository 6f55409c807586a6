"""Progress bars of table loads on a terminal, below the log, and one line per finished load."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from lookup_core.statistics import LoadResult, LoadStatistics
from service.observability.line_sink import LineSink

PERIOD_S = 0.2
_BAR_WIDTH = 30  # characters


class LoadBars:
    """One bar per load in progress; used by one event loop only."""

    def __init__(
        self,
        sink: LineSink,
        loads: Callable[[], Mapping[str, LoadStatistics | None]],
        *,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sink = sink
        self._loads = loads
        # Renders text only: the sink writes it, without blocking.
        self._console = console or Console(stderr=True, force_terminal=True)
        self._clock = clock
        self._first: dict[str, _Progress] = {}  # {dimension: its load's first progress}
        self._ended: dict[str, int] = {}  # {dimension: successful loads}

    async def run(self) -> None:
        """Draw until cancelled, which removes the bars; returns at once without a terminal."""
        if not self._sink.is_terminal or self._console.is_dumb_terminal:
            return
        try:
            while True:
                self.draw()
                await asyncio.sleep(PERIOD_S)
        finally:
            self._sink.show("")

    def draw(self) -> None:
        """Show the progress of all loads, and log each newly finished one."""
        loads = {name: load for name, load in self._loads().items() if load}
        under_way = {name: load for name, load in loads.items() if load.is_loading}
        self._first = {
            name: self._first.get(name, _Progress(self._clock(), load.rows))
            for name, load in under_way.items()
        }
        self._sink.show(self._bars(under_way))
        for name, load in loads.items():
            self._log_end(name, load)

    def _bars(self, loads: Mapping[str, LoadStatistics]) -> str:
        if not loads:
            return ""
        table = Table.grid(padding=(0, 1))
        for name, load in loads.items():
            # The expected number is an estimate: a load that exceeds it is not complete.
            expected = load.expected_rows
            total = None if expected is None else max(expected, load.rows)
            now = self._clock()
            bar = ProgressBar(
                total, load.rows, width=_BAR_WIDTH, pulse=not total, animation_time=now
            )
            table.add_row(Text(name, no_wrap=True), bar, self._figures(name, load))
        with self._console.capture() as capture:
            self._console.print(table)
        return capture.get().rstrip("\n")

    def _figures(self, name: str, load: LoadStatistics) -> Text:
        first = self._first[name]
        seconds = self._clock() - first.at
        about = "" if load.expected_rows is None else f" of about {load.expected_rows:,}"
        rate = "…" if seconds < PERIOD_S else f"{(load.rows - first.rows) / seconds:,.0f} rows/s"
        return Text(f"{load.rows:,}{about} rows, {rate}, {seconds:.0f} s", no_wrap=True)

    def _log_end(self, name: str, load: LoadStatistics) -> None:
        ended = load.counts[LoadResult.OK]
        # If the next load has begun, `rows` belongs to it.
        is_new = ended > self._ended.get(name, 0) and not load.is_loading
        self._ended[name] = ended
        if is_new and load.last_seconds is not None:
            rate = load.rows / max(load.last_seconds, 1e-3)
            self._sink.msg(
                f"{name}: {load.rows:,} rows in {load.last_seconds:.1f} s, {rate:,.0f} rows/s"
            )


@dataclass(frozen=True, slots=True)
class _Progress:
    at: float
    rows: int
