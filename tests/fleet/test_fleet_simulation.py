"""The simulation of a fleet: its conservation laws, limits and outages, and its page."""

import re
from dataclasses import replace

import pytest

from lookup_core.answer import Outcome
from tools.fleet.report import (
    LOADS,
    PAGE,
    STREAMS,
    fleet_page,
    line_of,
    load_cells,
    stream_cells,
)
from tools.fleet.simulation import FleetRun, Plan, simulate
from tools.fleet.workload import FAILED, JobModel

SMALL = Plan(3, 10.0, job=JobModel(records_per_s=200, table_rows=500))
FAILING = replace(SMALL, seconds=40.0, outage=(10.0, 25.0))


@pytest.fixture(scope="module")
def failing() -> FleetRun:
    """A run with an outage."""
    return simulate(FAILING)


def test_each_lookup_has_one_outcome(failing: FleetRun) -> None:
    """Hits, fetched rows and failures are all lookups, as the sidecars count them."""
    known = {Outcome.HIT, Outcome.FETCHED, *FAILED}

    for batch in failing.batches:
        assert batch.submitted == sum(batch.lookups[outcome] for outcome in known)
        assert batch.lookups.total() == batch.submitted
    assert failing.outcomes == sum(batch.submitted for batch in failing.batches)


def test_outage_stops_queries_and_keeps_hits(failing: FleetRun) -> None:
    """During an outage the database gets no query, and few attempts to connect."""
    begins_at = int(failing.began_at) + 10
    seconds = range(begins_at, begins_at + 15)
    down = [each for each in failing.batches if begins_at <= each.began_at < begins_at + 15]

    assert [failing.log.queries[at] for at in seconds] == [0] * 15
    assert all(failing.log.connects[at] <= 3 * 4 for at in seconds[1:])  # four probes at most
    assert all(each.lookups[Outcome.FETCHED] == 0 for each in down)
    assert all(each.lookups[Outcome.HIT] > 0 and each.failed > 0 for each in down)
    assert failing.batches[-1].failed == 0


def test_page_shows_the_present_figures() -> None:
    """The lines of the smallest fleets are those of a run now; the others take minutes."""
    lines = PAGE.read_text().splitlines()
    smallest = (stream_cells, STREAMS[0]), (load_cells, LOADS[0])

    shown = [line_of(case, cells) for run, case in smallest for cells in run(case).values()]

    assert [line for line in shown if line not in lines] == [], "run python -m tools.fleet --write"


def test_page_is_generated() -> None:
    """Everything but the lines of the cases is the text of the tool."""
    names = ("connections", "queries", "restart", "failover", "load")
    empty = fleet_page([(STREAMS[0], dict.fromkeys(names, ()))])
    figures = re.compile(r"^\| [\d,]+ \|.*\n", re.MULTILINE)

    assert figures.sub("", PAGE.read_text()) == figures.sub("", empty)
