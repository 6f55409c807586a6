"""What is printed about changes."""

import io

from rich.console import Console

from demo.live.live_report import ChangeDelays, Sighting, live_report

SIGHTINGS = [
    Sighting(1.0, 5, {("airports", "SJU"): {0: 2}, ("airports", "BQN"): {0: 1, 1: 1}}),
    Sighting(2.0, 5, {("airports", "SJU"): {1: 2}, ("planes", "N1"): {0: 1, 1: 7}}),
]


def printed(delays: ChangeDelays, *, width: int = 80) -> list[str]:
    """The lines on a terminal."""
    console = Console(file=io.StringIO(), width=width)
    live_report(console, delays, SIGHTINGS)
    assert isinstance(console.file, io.StringIO)
    return [line.strip() for line in console.file.getvalue().splitlines()]


def test_delays_stand_by_dimension() -> None:
    """Counts, and milliseconds: median, 99 of 100, and the largest; all together in the end."""
    hundred = [number / 100 for number in range(101)]
    delays = ChangeDelays({"planes": hundred, "airports": [2.0]}, [("airports", "BQN")])

    figures = [line.split() for line in printed(delays) if line]

    assert ["planes", "101", "101", "500", "990", "1,000"] in figures
    assert ["airports", "2", "1", "2,000", "2,000", "2,000"] in figures
    assert ["all", "103", "102", "505", "1,000", "2,000"] in figures


def test_flights_to_missing_airports_are_counted() -> None:
    """Those without an airport, and those with one, over all micro-batches."""
    lines = printed(ChangeDelays({}, []), width=200)

    assert lines[-1] == (
        "flights to BQN, SJU: 3 without an airport before its row came, 3 with it afterwards"
    )


def test_nothing_seen_has_no_figures() -> None:
    """A dash stands for what nothing is known of, and no line is wider than a terminal."""
    lines = printed(ChangeDelays({"planes": []}, [("planes", "N1")]))

    assert ["planes", "1", "0", "-", "-", "-"] in [line.split() for line in lines]
    assert max(map(len, lines)) <= 80
