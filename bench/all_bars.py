"""The table of all bars: what was promised, what was measured, and by how much it falls short.

A bar that is missed is a figure, not a fault: machines differ.
"""

from collections.abc import Iterable

from bench.section import Bar, FigureTable, Section


def all_bars(sections: Iterable[Section]) -> FigureTable:
    """A row for each bar, in the order of the sections."""
    bars = [bar for section in sections for bar in section.bars]
    return FigureTable("Bars", ("what", "bar", "figure", "verdict", "why"), list(map(_row, bars)))


def shortfall_percent(bar: Bar) -> float:
    """By how much of the bar the figure falls short; 0 if it is met."""
    if bar.is_met:
        return 0.0
    return abs(bar.figure / bar.limit - 1) * 100 if bar.limit else 100.0


def _row(bar: Bar) -> tuple[str, ...]:
    sign = "≥" if bar.is_at_least else "≤"
    verdict = "met" if bar.is_met else f"short by {shortfall_percent(bar):.1f} %"
    why = "" if bar.is_met else bar.shortfall
    return (bar.name, f"{sign} {_number(bar.limit)}", _number(bar.figure), verdict, why)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
