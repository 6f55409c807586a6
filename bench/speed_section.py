"""The report of `speed`: rates, their ratio to `widen`, and the bars they are held against.

A rate alone says what machine it was; the ratio says what the lookup costs. Nothing runs in here.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.section import Bar, FigureTable, Plot, Section
from bench.timing import KINDS, Seconds, Timing

REFERENCE = "widen"
_QUERY_SHORTFALL = "through a Unix socket on the same machine a query takes little time"
_BATCH_SHORTFALL = "through a Unix socket on the same machine a batch's query is quick"
_DICT_SHORTFALL = (
    "each worker has nearly all keys of these events in a dict without a bound by then, and hardly"
    " asks any more"
)
_SAID = {"zipf": "Zipf keys", "uniform": "uniform keys"}
ORDERED, UNORDERED = "sidelook ordered", "sidelook unordered"


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast a contender did so many events."""

    timing: Timing
    events: int
    spent: Sequence[Seconds]  # of all rounds, those that warm up first

    @property
    def per_second(self) -> float:
        """Of the median round."""
        return self.events / self.timing.median_s

    def cpu_ns(self, kind: str) -> float:
        """The processor time that a kind of process takes for a record, in nanoseconds."""
        counted = self.spent[-len(self.timing.seconds) :]
        return statistics.median(each[kind] for each in counted) / self.events * 1e9


Rates = Mapping[str, Mapping[str, Rate]]  # {kind of key: {contender: rate}}


def speed_section(
    rates: Rates, *, remarks: Sequence[str] = (), faults: Sequence[str] = ()
) -> Section:
    """All that was measured of both kinds of key."""
    return Section(
        name="speed",
        title="Speed of a lookup join",
        remarks=remarks,
        tables=[table(*each) for each in rates.items() for table in (_table, _spent)],
        plots=[_plot(rates)],
        bars=list(_bars(rates)),
        faults=faults,
    )


def _table(keys: str, rates: Mapping[str, Rate]) -> FigureTable:
    rows = [
        [
            name,
            f"{rate.per_second:,.0f}",
            f"{_ratio(rates, name, REFERENCE):.3f}",
            " ".join(f"{seconds:.2f}" for seconds in rate.timing.seconds),
        ]
        for name, rate in rates.items()
    ]
    headings = ["contender", "records/s", "to widen", "seconds, each round"]
    return FigureTable(f"warm, {_SAID[keys]}", headings, rows)


def _spent(keys: str, rates: Mapping[str, Rate]) -> FigureTable:
    rows = [
        [name, *(f"{rate.cpu_ns(kind):,.0f}" for kind in KINDS)] for name, rate in rates.items()
    ]
    title = f"warm, {_SAID[keys]}: processor time, ns a record"
    return FigureTable(title, ["contender", *KINDS], rows)


def _plot(rates: Rates) -> Plot:
    series = {
        _SAID[keys]: [(name, _ratio(found, name, REFERENCE)) for name in found]
        for keys, found in rates.items()
    }
    return Plot(
        name="speed",
        title="Rate of enriching events, against adding the same columns without a lookup",
        x_label="",
        y_label="rate (widen is 1)",
        series=series,
    )


def _bars(rates: Rates) -> Iterator[Bar]:
    zipf, uniform = rates["zipf"], rates["uniform"]
    for found, keys, limit in ((zipf, "Zipf", 0.85), (uniform, "uniform", 0.70)):
        for name in (ORDERED, UNORDERED):
            mode = name.removeprefix("sidelook ")
            bar = f"warm, {keys} keys, {mode}: rate against `widen`"
            yield Bar(bar, _ratio(found, name, REFERENCE), limit)
    for other, said, limit, why in (
        ("query per record", "one query per record", 50.0, _QUERY_SHORTFALL),
        ("query per batch", "the per-batch query", 2.0, _BATCH_SHORTFALL),
    ):
        least = min(_least(found, other) for found in rates.values())
        most = min(_ratio(found, REFERENCE, other) for found in rates.values())
        bar = f"warm, either kind and mode: rate against {said}"
        yield Bar(bar, least, limit, shortfall=_with_most(why, most))
    for found, keys, limit in ((zipf, "Zipf", 1.3), (uniform, "uniform", 3.0)):
        bar = f"warm, {keys} keys, either mode: rate against the worker's dict cache"
        most = _ratio(found, REFERENCE, "dict in the worker")
        least = _least(found, "dict in the worker")
        yield Bar(bar, least, limit, shortfall=_with_most(_DICT_SHORTFALL, most))


def _with_most(why: str, ratio: float) -> str:
    """Why, and what a contender gets that looks nothing up."""
    return f"{why}; `widen`, without a lookup, has {ratio:.2f} itself"


def _least(rates: Mapping[str, Rate], other: str) -> float:
    """Of the two modes, the one that does worse."""
    return min(_ratio(rates, name, other) for name in (ORDERED, UNORDERED))


def _ratio(rates: Mapping[str, Rate], name: str, other: str) -> float:
    return rates[name].per_second / rates[other].per_second
