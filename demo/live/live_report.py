"""What a live run prints at its end: how soon changes showed, and what became of the airports.

Formats only; measuring and judging are done elsewhere.
"""

from collections.abc import Sequence

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from demo.dimension import AIRPORTS
from demo.live.change_delays import ChangeDelays
from demo.live.planned_change import ABSENT, ARRIVED
from demo.live.sighting import Sighting

COLUMNS = ("rows changed", "seen", "median ms", "p99 ms", "max ms")


def live_report(console: Console, delays: ChangeDelays, sightings: Sequence[Sighting]) -> None:
    """Print the delays of each dimension, and the flights to airports that were missing."""
    console.print()
    console.print(_delays(delays))
    console.print()
    missing, found = (_flights_to_airports(sightings, version) for version in (ABSENT, ARRIVED))
    names = ", ".join(sorted({key for name, key in _keys(sightings) if name == AIRPORTS.name}))
    console.print(
        f"flights to {names}: {missing:,} without an airport before its row came, "
        f"{found:,} with it afterwards"
    )


def _delays(delays: ChangeDelays) -> Table:
    table = Table(
        title="From the commit of a change to the first flight with it",
        title_justify="left",
        box=SIMPLE_HEAD,
        show_edge=False,
        show_footer=True,
        padding=(0, 1, 0, 0),
    )
    every = [delay for each in delays.seconds.values() for delay in each]
    table.add_column("dimension", "all", no_wrap=True)
    for title, value in zip(COLUMNS, _row(every, len(delays.unseen)), strict=True):
        table.add_column(title, value, justify="right")
    for name, seconds in delays.seconds.items():
        unseen = sum(dimension == name for dimension, _ in delays.unseen)
        table.add_row(name, *_row(seconds, unseen))
    return table


def _row(seconds: Sequence[float], unseen: int) -> list[str]:
    counts = [f"{len(seconds) + unseen:,}", f"{len(seconds):,}"]
    if not seconds:
        return [*counts, "-", "-", "-"]
    quantiles = np.quantile(seconds, [0.5, 0.99, 1.0]) * 1_000
    return [*counts, *(f"{milliseconds:,.0f}" for milliseconds in quantiles)]


def _flights_to_airports(sightings: Sequence[Sighting], version: int) -> int:
    return sum(
        versions.get(version, 0)
        for sighting in sightings
        for (name, _), versions in sighting.versions.items()
        if name == AIRPORTS.name
    )


def _keys(sightings: Sequence[Sighting]) -> set[tuple[str, str]]:
    return {key for sighting in sightings for key in sighting.versions}
