"""Sections of a benchmark on the terminal, as they come, and all bars at the end.

Shows what it is given; the page is `document`'s business.
"""

from collections.abc import Sequence
from typing import Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.section import FigureTable, Section, all_bars, shortfalls


class Printout:
    """What people see while a benchmark runs."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def on_part(self, name: str) -> None:
        """A part begins."""
        self._console.rule(escape(name), align="left", style="dim")

    def on_section(self, section: Section, *, seconds: float) -> None:
        """What a part has found, and how long it took."""
        for table in section.tables:
            self._console.print(_rich_table(table))
        for fault in section.faults:
            self._console.print(f"WRONG: {escape(fault)}", style="red")
        self._console.print(f"{seconds:.0f} s", style="dim")

    def on_end(self, sections: Sequence[Section], *, page: str) -> None:
        """All bars, and where the page is."""
        bars = all_bars(sections)
        if bars.rows:
            self._console.rule(style="dim")
            self._console.print(_rich_table(bars))
        for name, why in shortfalls(sections):
            self._console.print(f"{escape(name)}\n  because {escape(why)}")
        self._console.print(f"written: {escape(page)}")

    def on_failure(self) -> None:
        """A part ended with the exception at hand."""
        self._console.print_exception()


def _rich_table(table: FigureTable) -> Table:
    made = Table(title=escape(table.title), title_justify="left", title_style="bold")
    for index, heading in enumerate(table.headings):
        is_figure = index and all(row[index][:1].isdigit() for row in table.rows)
        justify: Literal["left", "right"] = "right" if is_figure else "left"
        made.add_column(escape(heading), justify=justify, overflow="fold")
    for row in table.rows:
        made.add_row(*map(escape, row))
    return made
