"""What growth was found, as a section: a table and a line for each thing that grew.

Says nothing of how it was measured but in words.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bench.growth_cases import (
    BATCH_KEYS,
    CHANNELS,
    PROCESS_EACH,
    ROWS,
    WIDE_ROWS,
    CaseFigures,
    Growth,
)
from bench.lookup_load import IN_FLIGHT_KEYS
from bench.section import Bar, FigureTable, Plot, Section

LEAST_RATE = 0.90  # of all channels together, against that of one

_HEADINGS = ("lookups/s", "to the first", "MB/s of rows", "client ns", "sidecar ns")
_METHOD = (
    "Clients without Spark ask a sidecar over its Unix socket for rows that are all cached. Where a"
    f" table does not say otherwise, there are {ROWS:,} of them, with three columns, and a channel"
    f" asks for {BATCH_KEYS:,} keys at a time, and keeps {IN_FLIGHT_KEYS:,} in flight, as a lookup"
    f" join does; of rows of several widths there are {WIDE_ROWS:,}. A channel is served by a"
    " thread; clients and sidecar share the cores. Cases take turns, and figures are medians."
    " `client ns` and `sidecar ns` are processor time for a lookup, of all clients and of the"
    " sidecar; `to the first` is to the first line of the same clients."
)
_PROCESSES = (
    "Spark runs each task in a Python worker process of its own, which has one connection, so the"
    f" bar is held against {CHANNELS[-1]} processes with a channel each. That many channels of one"
    " process share its connection and its interpreter lock; they are shown beside."
)
_WHY = (
    "What does not depend on the number of keys is why small batches are dear. Rows cost more where"
    " there are more of them, because they lie in more pieces and no longer in the processor's"
    " caches."
)
_SHORTFALL = (
    "with many processes on few cores, each finds the processor's caches filled with what others"
    " left, at the sidecar's cost and at its own"
)


@dataclass(frozen=True, slots=True)
class MeasuredGrowth:
    """One thing that grew, and the figures of its cases."""

    growth: Growth
    figures: Sequence[CaseFigures]

    def rate(self, series: str, x: int) -> float:
        """Lookups per second of one case."""
        return next(
            each.lookups_per_second
            for each in self.figures
            if (each.case.series, each.case.x) == (series, x)
        )

    def plot(self, name: str, y_label: str, value: Callable[[CaseFigures], float]) -> Plot:
        """A line for each series."""
        series: dict[str, list[tuple[float | str, float]]] = {}
        for each in self.figures:
            series.setdefault(each.case.series, []).append((each.case.x, value(each)))
        growth = self.growth
        title = f"{y_label}, by {growth.x_label}"
        return Plot(f"growth-{name}", title, growth.x_label, y_label, series, growth.is_log_x)


def growth_report(measured: Sequence[MeasuredGrowth], *, rounds: int) -> Section:
    """The section; a key that the cache did not answer is a fault, for then it was no such load."""
    by_name = {each.growth.name: each for each in measured}
    return Section(
        name="growth",
        title="Growth",
        remarks=[f"{_METHOD} Rounds: {rounds}.", _PROCESSES, *_costs(by_name["batches"]), _WHY],
        tables=[_table(each) for each in measured],
        plots=[
            *(each.plot(each.growth.name, "lookups/s", _rate) for each in measured),
            by_name["columns"].plot("bytes", "MB/s of rows", _megabytes),
        ],
        bars=[_bar(by_name["channels"])],
        faults=list(_faults(measured)),
    )


def _rate(figures: CaseFigures) -> float:
    return figures.lookups_per_second


def _megabytes(figures: CaseFigures) -> float:
    return figures.bytes_per_second / 1e6


def _bar(channels: MeasuredGrowth) -> Bar:
    one, many = (channels.rate(PROCESS_EACH, count) for count in (CHANNELS[0], CHANNELS[-1]))
    name = f"{CHANNELS[-1]} channels against one: total rate"
    return Bar(name, many / one, LEAST_RATE, shortfall=_SHORTFALL)


def _costs(batches: MeasuredGrowth) -> Iterator[str]:
    """What a batch costs and what a key, from the processor time for a key by size of batch."""
    small, large = batches.figures[0], batches.figures[-2]  # the largest is sent in several frames
    apart = 1 / small.case.x - 1 / large.case.x
    for name, ns in (("sidecar", _sidecar_ns), ("client", _client_ns)):
        batch_ns = (ns(small) - ns(large)) / apart
        key_ns = ns(large) - batch_ns / large.case.x
        yield (
            f"By batches of {small.case.x:,} and of {large.case.x:,} keys, a batch costs the {name}"
            f" {batch_ns / 1000:,.0f} µs of processor time, and each of its keys {key_ns:,.0f} ns."
        )


def _client_ns(figures: CaseFigures) -> float:
    return figures.client_ns


def _sidecar_ns(figures: CaseFigures) -> float:
    return figures.sidecar_ns


def _table(measured: MeasuredGrowth) -> FigureTable:
    first: dict[str, float] = {}
    rows = []
    for each in measured.figures:
        rate = each.lookups_per_second
        ratio = rate / first.setdefault(each.case.series, rate)
        figures = (f"{rate:,.0f}", f"{ratio:.2f}", f"{each.bytes_per_second / 1e6:,.0f}")
        times = (f"{each.client_ns:,.0f}", f"{each.sidecar_ns:,.0f}")
        rows.append((each.case.series, f"{each.case.x:,}", *figures, *times))
    headings = ("clients", measured.growth.x_label, *_HEADINGS)
    return FigureTable(measured.growth.title, headings, rows)


def _faults(measured: Sequence[MeasuredGrowth]) -> Iterator[str]:
    for each in measured:
        for figures in each.figures:
            uncached = sum(each.uncached_keys for each in figures.rounds)
            if uncached:
                case = f"{figures.case.x} {each.growth.x_label}"
                yield f"{case}: the cache did not answer {uncached:,} keys"
