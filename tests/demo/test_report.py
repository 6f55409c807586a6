"""What is printed at the end."""

import io

import pytest
from rich.console import Console

from demo.dimension import DIMENSIONS
from demo.flights import flights
from demo.report import report
from demo.totals import count_totals
from tests.demo.enriched_flights import enriched_flights


@pytest.fixture(scope="module")
def lines() -> list[str]:
    """The report on a hundred flights, on a terminal of 80 characters."""
    enriched = enriched_flights(flights().slice(0, 100))
    totals = [count_totals(dim, enriched, queries=3, metrics="") for dim in DIMENSIONS]
    console = Console(file=io.StringIO(), width=80)
    report(console, enriched, totals)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_five_enriched_rows_are_shown(lines: list[str]) -> None:
    """One sees what became of some flights."""
    rows = [line for line in lines if line.startswith("2013-01-01 ")]

    assert len(rows) == 5
    first = "2013-01-01 10:15  United Air Line…  N14228  737-824     IAH  George Bush…  39.0"
    assert rows[0] == first


def test_figures_stand_by_dimension(lines: list[str]) -> None:
    """Each dimension has its records, hits, fetched, missing, errors, queries; all have a sum."""
    figures = [line.split() for line in lines[-8:-2] if line]

    assert figures == [
        ["planes", "100", "77", "0", "23", "0", "3", "100"],
        ["airports", "100", "95", "0", "5", "0", "3", "100"],
        ["airlines", "100", "100", "0", "0", "0", "3", "100"],
        ["weather", "100", "100", "0", "0", "0", "3", "100"],
        ["all", "400", "372", "0", "28", "0", "12", "400"],
    ]


def test_fetched_is_explained(lines: list[str]) -> None:
    """It may be far more than the queries, and people wonder."""
    assert lines[-2] == "fetched: records whose row came from a query, many to a query"


def test_lines_fit_a_narrow_terminal(lines: list[str]) -> None:
    """Nothing wraps at 80 characters."""
    assert max(map(len, lines)) <= 80
