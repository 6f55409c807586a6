"""The report of the speed of lookup joins."""

from bench.section import Bar
from bench.speed_section import Rate, Rates, speed_section
from bench.timing import KINDS, Timing

SECONDS = {
    "widen": 1.0,
    "sidelook ordered": 1.0,
    "sidelook unordered": 2.0,
    "query per record": 4.0,
    "query per batch": 4.0,
    "dict in the worker": 2.0,
}
EVENTS = {"query per record": 10}  # the others have 100
WARMING_UP, COUNTED = dict.fromkeys(KINDS, 9.0), dict.fromkeys(KINDS, 0.0) | {"sidecar": 2e-6}


def _rates(seconds: dict[str, float]) -> Rates:
    found = {
        name: Rate(Timing(name, (taken,)), EVENTS.get(name, 100), [WARMING_UP, COUNTED])
        for name, taken in seconds.items()
    }
    return {"zipf": found, "uniform": found}


def test_ratio_is_of_rates() -> None:
    """A tenth of the events in four times the time is a fortieth of the rate."""
    section = speed_section(_rates(SECONDS))

    ratios = {row[0]: (row[1], row[2]) for row in section.tables[0].rows}
    assert ratios["widen"] == ("100", "1.000")
    assert ratios["query per record"] == ("2", "0.025")
    assert section.plots[0].series["Zipf keys"][3] == ("query per record", 0.025)


def test_processor_time_is_told_by_record() -> None:
    """What each kind of process took for one event in a round that counts, in nanoseconds."""
    section = speed_section(_rates(SECONDS))

    row = section.tables[1].rows[0]
    assert dict(zip(section.tables[1].headings, row, strict=True)) == {
        "contender": "widen",
        "JVM": "0",
        "Python workers": "0",
        "sidecar": "20",
        "PostgreSQL": "0",
    }


def test_bars_take_the_slower_mode() -> None:
    """Against `widen` each mode has a bar; against others the mode that does worse counts."""
    bars = speed_section(_rates(SECONDS)).bars

    assert [(bar.figure, bar.limit) for bar in bars] == [
        (1.0, 0.85),
        (0.5, 0.85),
        (1.0, 0.7),
        (0.5, 0.7),
        (20.0, 50.0),
        (2.0, 2.0),
        (1.0, 1.3),
        (1.0, 3.0),
    ]


def test_bar_says_what_is_met() -> None:
    """A figure that falls short is not met."""
    bars = speed_section(_rates(SECONDS)).bars

    assert bars[0] == Bar("warm, Zipf keys, ordered: rate against `widen`", 1.0, 0.85)
    assert [bar.is_met for bar in bars[:2]] == [True, False]
