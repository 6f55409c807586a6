"""Sections and runs for the tests of the page; nothing here was measured."""

from datetime import date

from bench.document import Machine, Run
from bench.section import Bar, FigureTable, Plot, Section

MACHINE = Machine(2, 2**34, "Some CPU", "Linux x86_64", "3.11.0", (("numpy", "2.0"),))


def section(name: str, *, faults: tuple[str, ...] = ()) -> Section:
    """One with something of everything."""
    return Section(
        name,
        f"About {name}",
        remarks=["How it was measured."],
        tables=[FigureTable("Rates", ("who", "rate"), [("a|b", "1.5")])],
        plots=[Plot(f"{name}-rates", "Rates", "who", "lookups/s", {"warm": [("widen", 1.0)]})],
        bars=[Bar(f"{name} against widen", 0.5, 0.85, shortfall="too slow")],
        faults=faults,
    )


def run(*measured: str, parts: tuple[str, ...] = ("speed", "cold"), is_quick: bool = False) -> Run:
    """A run of these parts, of all that there are."""
    return Run(MACHINE, date(2026, 1, 31), parts, measured, is_quick=is_quick)
