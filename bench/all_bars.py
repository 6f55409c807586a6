"""All bars: what was promised, what was measured, by how much it falls short, and why.

A bar that is missed is a figure, not a fault: machines differ.
"""

from collections.abc import Iterable, Iterator

from bench.section import Bar, FigureTable, Section


def all_bars(sections: Iterable[Section]) -> FigureTable:
    """A row for each bar, in the order of the sections."""
    bars = [bar for section in sections for bar in section.bars]
    return FigureTable("Bars", ("what", "bar", "figure", "verdict"), list(map(_row, bars)))


def shortfalls(sections: Iterable[Section]) -> Iterator[tuple[str, str]]:
    """Name and reason of each bar that is missed, where the reason is known."""
    for section in sections:
        for bar in section.bars:
            if not bar.is_met and bar.shortfall:
                yield bar.name, bar.shortfall


def shortfall_percent(bar: Bar) -> float:
    """By how much of the bar the figure falls short; 0 if it is met."""
    if bar.is_met:
        return 0.0
    return abs(bar.figure / bar.limit - 1) * 100 if bar.limit else 100.0


def _row(bar: Bar) -> tuple[str, ...]:
    sign = "≥" if bar.is_at_least else "≤"
    verdict = "met" if bar.is_met else f"short by {shortfall_percent(bar):.1f} %"
    return (bar.name, f"{sign} {bar.limit:g}", _number(bar.figure), verdict)


def _number(value: float) -> str:
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.2f}"
