"""Command-line interface of the benchmark: measures one part or all and publishes the results.

The exit code is 1 if an output was wrong or a part failed. A missed target is only reported,
because machines differ. Figures are comparable only within one run.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Protocol

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.cache_flood import cache_flood
from bench.cold import cold
from bench.document import Run, found_sections, machine_table, publication
from bench.fairness import fairness
from bench.growth import growth
from bench.hit_rates import hit_rates
from bench.http_load import http_load
from bench.invalidation import invalidation
from bench.memory import memory
from bench.one_pass import one_pass
from bench.row_bytes import row_bytes
from bench.section import FigureTable, Section, miss_reasons, target_table
from bench.speed import speed
from bench.wide_records import wide_records

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "out" / "bench"
LOG_COLUMNS = 140


class Part(Protocol):
    """Measurement of one subject."""

    def __call__(self, folder: Path, /, *, is_quick: bool) -> Section:
        """Measure with files below `folder`."""


PARTS: dict[str, Part] = {
    "speed": speed,
    "one-pass": one_pass,
    "wide": wide_records,
    "cold": cold,
    "invalidation": invalidation,
    "http": http_load,
    "growth": growth,
    "row-bytes": row_bytes,
    "fairness": fairness,
    "memory": memory,
    "hit-rates": hit_rates,
    "flood": cache_flood,
}


def main() -> int:
    """Measure the selected parts and return the exit code."""
    arguments = _arguments()
    width = None if sys.stdout.isatty() else LOG_COLUMNS  # None: the width of the terminal
    console = Console(highlight=False, width=width)
    chosen = list(PARTS) if arguments.part == "all" else [arguments.part]
    kept = FOLDER / ("quick-sections" if arguments.quick else "full-sections")
    kept.mkdir(parents=True, exist_ok=True)
    measured = [name for name in chosen if _measure(name, kept, console, is_quick=arguments.quick)]
    sections = found_sections(kept, PARTS)
    today = datetime.now(UTC).date()
    run = Run(machine_table(), today, list(PARTS), measured, is_quick=arguments.quick)
    page = publication(sections, run, ROOT)
    new = [section for section in sections if section.name in measured]
    print_summary(console, new, page=str(page.relative_to(ROOT)))
    has_fault = any(section.faults for section in new)
    return int(has_fault or len(measured) < len(chosen))


def _measure(name: str, kept: Path, console: Console, *, is_quick: bool) -> bool:
    """Measure a part and keep its section; return False if the part failed."""
    console.rule(escape(name), align="left", style="dim")
    begun_s = time.monotonic()
    try:
        section = PARTS[name](FOLDER, is_quick=is_quick)
    except Exception:  # noqa: BLE001  a part's failure must not lose the figures of the others
        console.print_exception()
        return False
    section.write(kept)
    print_section(console, section, seconds=time.monotonic() - begun_s)
    return True


def print_section(console: Console, section: Section, *, seconds: float) -> None:
    """Print the tables and faults of a part and the time that it took."""
    for table in section.tables:
        console.print(_rich_table(table))
    for fault in section.faults:
        console.print(f"WRONG: {escape(fault)}", style="red")
    console.print(f"{seconds:.0f} s", style="dim")


def print_summary(console: Console, sections: Sequence[Section], *, page: str) -> None:
    """Print all targets, the reasons of the missed ones and the path of the page."""
    targets = target_table(sections)
    if targets.rows:
        console.rule(style="dim")
        console.print(_rich_table(targets))
    for name, reason in miss_reasons(sections):
        console.print(f"{escape(name)}\n  because {escape(reason)}")
    console.print(f"written: {escape(page)}")


def _rich_table(table: FigureTable) -> Table:
    made = Table(title=escape(table.title), title_justify="left", title_style="bold")
    for index, heading in enumerate(table.headings):
        is_figure = index and all(row[index][:1].isdigit() for row in table.rows)
        justify: Literal["left", "right"] = "right" if is_figure else "left"
        made.add_column(escape(heading), justify=justify, overflow="fold")
    for row in table.rows:
        made.add_row(*map(escape, row))
    return made


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("part", nargs="?", choices=[*PARTS, "all"], default="all")
    parser.add_argument("--quick", action="store_true", help="use small sizes for a first look")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped")
