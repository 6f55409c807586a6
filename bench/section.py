"""Sections of the benchmark: tables, plots and the bars they are held against."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure that was promised, and what was measured."""

    name: str
    figure: float
    limit: float
    is_at_least: bool = True  # else the figure is to be at most the limit
    shortfall: str = ""  # why it falls short, where that is known

    @property
    def is_met(self) -> bool:
        """Whether the promise was kept in this run."""
        return self.figure >= self.limit if self.is_at_least else self.figure <= self.limit


@dataclass(frozen=True, slots=True)
class FigureTable:
    """Rows of text, one heading for each column."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Plot:
    """Bars (x is a name) or lines (x is a number) of one or more series."""

    name: str  # of the file, without its ending
    title: str
    x_label: str
    y_label: str
    series: Mapping[str, Sequence[tuple[float | str, float]]]
    is_log_x: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """One part of a run."""

    name: str
    title: str
    remarks: Sequence[str]  # how it was measured, a paragraph each
    tables: Sequence[FigureTable] = ()
    plots: Sequence[Plot] = ()
    bars: Sequence[Bar] = ()
    faults: Sequence[str] = ()  # what was wrong, not slow: the run has failed

    def write(self, folder: Path) -> None:
        """Write it as `<name>.json`."""
        (folder / f"{self.name}.json").write_text(json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def read(cls, path: Path) -> Self:
        """The section of such a file."""
        found: dict[str, Any] = json.loads(path.read_text())
        found["tables"] = [FigureTable(**each) for each in found["tables"]]
        found["plots"] = [Plot(**each) for each in found["plots"]]
        found["bars"] = [Bar(**each) for each in found["bars"]]
        return cls(**found)


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
