"""Progress of loads on a terminal, and one line when a load ends."""

import asyncio
import io
import os
import pty
import select
from dataclasses import replace

from rich.console import Console

from lookup_core.statistics import LoadResult, LoadStatistics
from service.observability.line_sink import LineSink
from service.observability.load_bars import LoadBars

LOADING = LoadStatistics(is_loading=True, rows=400_000, expected_rows=1_000_000)
LOADED = LoadStatistics(
    is_whole=True,
    rows=1_000_000,
    last_seconds=3.2,
    counts={LoadResult.OK: 1, LoadResult.ERROR: 0, LoadResult.OUTDATED: 0},
)
PATIENCE_S = 10.0


class Terminal:
    """A terminal without colours, and its clock."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.loads: dict[str, LoadStatistics | None] = {}
        self.now = 0.0
        self.bars = LoadBars(
            LineSink(self.stream),
            lambda: self.loads,
            console=Console(file=io.StringIO(), width=100, color_system=None),
            clock=lambda: self.now,
        )

    def drawn(self, **loads: LoadStatistics | None) -> str:
        """The text that is written for these loads."""
        self.loads = loads
        self.stream.truncate(0)
        self.stream.seek(0)
        self.bars.draw()
        return self.stream.getvalue()


def test_load_under_way_has_a_bar() -> None:
    """A bar shows the share, the rate and the time; without an estimate only the rows."""
    unknown = Terminal().drawn(customers=replace(LOADING, expected_rows=None))
    terminal = Terminal()
    terminal.drawn(customers=replace(LOADING, rows=100_000))
    terminal.now = 2.0

    _, _, drawn = terminal.drawn(customers=LOADING).partition("\x1b[J")

    assert (drawn.split()[0], drawn.count("━")) == ("customers", 12)
    assert drawn.rstrip().endswith(" 400,000 of about 1,000,000 rows, 150,000 rows/s, 2 s")
    assert unknown.rstrip().endswith("400,000 rows, …, 0 s")


def test_bars_stand_below_each_other() -> None:
    """Only loads under way have bars; all are removed together."""
    terminal = Terminal()

    nothing = terminal.drawn(airports=None, planes=LoadStatistics())
    first = terminal.drawn(customers=LOADING, planes=LOADING)

    assert nothing == ""
    assert [line.split()[0] for line in first.splitlines()] == ["customers", "planes"]
    assert terminal.drawn() == "\x1b[1A\r\x1b[J"


def test_ended_load_is_one_line() -> None:
    """The line has rows, duration and rate, once; a failed load only loses its bar."""
    terminal = Terminal()
    terminal.drawn(customers=LOADING, planes=LOADING)

    ended = terminal.drawn(customers=LOADED, planes=LoadStatistics(last_error="down"))

    line = "customers: 1,000,000 rows in 3.2 s, 312,500 rows/s\n"
    assert ended == f"\x1b[1A\r\x1b[J{line}"
    assert terminal.drawn(customers=LOADED) == ""
    next_one = replace(LOADED, is_loading=True, rows=7)  # its rows are not those of the last load
    assert "rows in" not in Terminal().drawn(customers=next_one)


async def test_bars_need_a_terminal() -> None:
    """Into a pipe or a file nothing is drawn."""
    terminal = Terminal()
    terminal.loads = {"customers": LOADING}

    await terminal.bars.run()

    assert terminal.stream.getvalue() == ""


async def test_bars_are_removed_at_the_end() -> None:
    """A service that ends leaves no bar on the terminal."""
    reader, writer = pty.openpty()
    drawn = asyncio.Event()

    def loads() -> dict[str, LoadStatistics]:
        drawn.set()
        return {"customers": LOADING}

    with os.fdopen(writer, "w") as stream:
        bars = LoadBars(LineSink(stream), loads, console=Console(force_terminal=True, width=100))
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
            task = tasks.create_task(bars.run())
            await drawn.wait()
            task.cancel()

        # A terminal hands its text on in pieces.
        seen = ""
        while not seen.endswith("\r\x1b[J") and select.select([reader], [], [], PATIENCE_S)[0]:
            seen += os.read(reader, 10_000).decode()
    os.close(reader)
    assert ("customers" in seen, seen.endswith("\r\x1b[J")) == (True, True)
