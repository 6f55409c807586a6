"""What one part of the benchmark found: tables, plots, and the bars it is held against.

Plain values that are written as JSON and read again, so that parts can run one by one; how they
look in print is `document`'s and `plots`' business.
"""

import json
from collections.abc import Mapping, Sequence
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
