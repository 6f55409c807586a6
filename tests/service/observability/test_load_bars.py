"""Loads are seen on a terminal while they run, and told in one line when they end."""

import asyncio
import io
import os
import pty
import select
from collections.abc import Iterator
from dataclasses import replace

import pytest
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
    """What a person would see of the loads, without colours, and the clock beside them."""

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

    def drawn(self) -> str:
        """What the next drawing writes."""
        self.stream.truncate(0)
        self.stream.seek(0)
        self.bars.draw()
        return self.stream.getvalue()


def test_nothing_is_drawn_without_loads() -> None:
    """Neither of a dimension that is read through, nor of one that waits for its load."""
    terminal = Terminal()
    terminal.loads = {"planes": None, "customers": LoadStatistics()}

    assert terminal.drawn() == ""


def test_load_under_way_has_a_bar() -> None:
    """How far it is, how fast, and since when."""
    terminal = Terminal()
    terminal.loads = {"customers": replace(LOADING, rows=100_000)}
    terminal.drawn()
    terminal.now, terminal.loads = 2.0, {"customers": LOADING}

    _, _, drawn = terminal.drawn().partition("\x1b[J")

    figures = "400,000 of about 1,000,000 rows, 150,000 rows/s, 2 s"
    assert (drawn.split()[0], drawn.count("━")) == ("customers", 12)
    assert drawn.rstrip().endswith(f" {figures}")


def test_load_of_unknown_size_pulses() -> None:
    """Without an estimate there are rows, and no share of them."""
    terminal = Terminal()
    terminal.loads = {"customers": replace(LOADING, expected_rows=None)}

    drawn = terminal.drawn()

    assert drawn.rstrip().endswith("400,000 rows, …, 0 s")


def test_each_load_has_its_bar() -> None:
    """Dimensions that load at once stand below each other, and go together."""
    terminal = Terminal()
    terminal.loads = {"customers": LOADING, "planes": LOADING}

    first = terminal.drawn()
    terminal.loads = {}

    assert [line.split()[0] for line in first.splitlines()] == ["customers", "planes"]
    assert terminal.drawn() == "\x1b[1A\r\x1b[J"


def test_ended_load_is_one_line() -> None:
    """The bar makes room for how many rows it were, how long that took, and how fast it was."""
    terminal = Terminal()
    terminal.loads = {"customers": LOADING}
    terminal.drawn()
    terminal.loads = {"customers": LOADED}

    told = "customers: 1,000,000 rows in 3.2 s, 312,500 rows/s\n"
    assert terminal.drawn() == f"\r\x1b[J{told}"
    assert terminal.drawn() == ""


def test_failed_load_leaves_no_line() -> None:
    """Its bar goes; why it failed stands in the log."""
    terminal = Terminal()
    terminal.loads = {"customers": LOADING}
    terminal.drawn()
    terminal.loads = {"customers": LoadStatistics(last_error="away")}

    assert terminal.drawn() == "\r\x1b[J"


def test_next_load_tells_no_wrong_rows() -> None:
    """Where the next load has begun meanwhile, its rows are not taken for the former's."""
    terminal = Terminal()
    terminal.loads = {"customers": replace(LOADED, is_loading=True, rows=7)}

    assert "rows in" not in terminal.drawn()


async def test_bars_end_without_a_terminal() -> None:
    """In a pipe or a file nothing is drawn at all."""
    terminal = Terminal()
    terminal.loads = {"customers": LOADING}

    await terminal.bars.run()

    assert terminal.stream.getvalue() == ""


@pytest.fixture
def screen() -> Iterator[tuple[int, LineSink]]:
    """What is read from a terminal, and who writes to it."""
    reader, writer = pty.openpty()
    with os.fdopen(writer, "w") as stream:
        yield reader, LineSink(stream)
    os.close(reader)


async def test_bars_are_wiped_off_at_the_end(screen: tuple[int, LineSink]) -> None:
    """Whoever stops the service finds no bar left behind on the terminal."""
    reader, sink = screen
    drawn = asyncio.Event()

    def loads() -> dict[str, LoadStatistics]:
        drawn.set()
        return {"customers": LOADING}

    bars = LoadBars(sink, loads, console=Console(force_terminal=True, width=100))
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(bars.run())
        await drawn.wait()
        task.cancel()

    # A terminal hands on in pieces, each in its own time.
    seen = ""
    while not seen.endswith("\r\x1b[J") and select.select([reader], [], [], PATIENCE_S)[0]:
        seen += os.read(reader, 10_000).decode()
    assert ("customers" in seen, seen.endswith("\r\x1b[J")) == (True, True)
