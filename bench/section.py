"""Benchmark section: the tables, plots and targets of one part, kept as JSON."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Target:
    """A measured figure and the limit that it has to meet."""

    name: str
    figure: float
    limit: float
    is_at_least: bool = True  # False: the figure must be at most the limit
    miss_reason: str = ""  # why the target is missed, if known

    @property
    def is_met(self) -> bool:
        """Whether the figure meets the limit."""
        return self.figure >= self.limit if self.is_at_least else self.figure <= self.limit

    @property
    def shortfall_percent(self) -> float:
        """Distance to the limit in percent of the limit; 0 if the target is met."""
        if self.is_met:
            return 0.0
        return abs(self.figure / self.limit - 1) * 100 if self.limit else 100.0


@dataclass(frozen=True, slots=True)
class FigureTable:
    """Rows of text with one heading per column."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Plot:
    """Series of points: a bar chart if x is a name, a line chart if x is a number."""

    name: str  # of the file, without its suffix
    title: str
    x_label: str
    y_label: str
    series: Mapping[str, Sequence[tuple[float | str, float]]]
    is_log_x: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """Results of one part."""

    name: str
    title: str
    remarks: Sequence[str]  # the method, one paragraph each
    tables: Sequence[FigureTable] = ()
    plots: Sequence[Plot] = ()
    targets: Sequence[Target] = ()
    faults: Sequence[str] = ()  # wrong results, not slow ones; each fails the run

    def write(self, folder: Path) -> None:
        """Write the section to `<name>.json`."""
        (folder / f"{self.name}.json").write_text(json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the section that `write` wrote."""
        found: dict[str, Any] = json.loads(path.read_text())
        found["tables"] = [FigureTable(**each) for each in found["tables"]]
        found["plots"] = [Plot(**each) for each in found["plots"]]
        found["targets"] = [Target(**each) for each in found["targets"]]
        return cls(**found)


def paragraphs(text: str) -> list[str]:
    """Split a text at its blank lines into paragraphs of one line each."""
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]


def target_table(sections: Iterable[Section]) -> FigureTable:
    """Return one row per target, in the order of the sections."""
    rows = [_row(target) for section in sections for target in section.targets]
    return FigureTable("Targets", ("target", "limit", "figure", "verdict"), rows)


def miss_reasons(sections: Iterable[Section]) -> Iterator[tuple[str, str]]:
    """Yield name and reason of each missed target whose reason is known."""
    for section in sections:
        for target in section.targets:
            if not target.is_met and target.miss_reason:
                yield target.name, target.miss_reason


def _row(target: Target) -> tuple[str, ...]:
    sign = "≥" if target.is_at_least else "≤"
    short = f"{target.shortfall_percent:.1f}"
    verdict = "met" if target.is_met else f"short by {'< 0.1' if short == '0.0' else short} %"
    figure = f"{target.figure:,.1f}" if abs(target.figure) >= 10 else f"{target.figure:.2f}"
    return (target.name, f"{sign} {target.limit:g}", figure, verdict)
