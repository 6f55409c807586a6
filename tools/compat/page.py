"""The matrix of a run: on the terminal, and as the page docs/compatibility.md."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from tools.compat.checks import CHECKS
from tools.compat.environments import ROOT
from tools.compat.pairs import Pair
from tools.compat.run import PairResult

PAGE = ROOT / "docs" / "compatibility.md"
PASSED, FAILED, NO_CONNECT, NOT_RUN = "yes", "**no**", "none", "not run"
_MARKS = {PASSED: "✓", FAILED: "✗", NO_CONNECT: "-", NOT_RUN: "."}  # on the terminal
_LIBRARIES = ("PySpark", "Python", "pyarrow", "numpy", "pandas")
_INTRODUCTION = """# Compatibility of the client

This page lists the versions of PySpark, Python and Arrow that the client is tested with.

`make compat` installs the client's wheel into an environment of each pair, runs the same checks
there against one sidecar, and prints the matrix; `python -m tools.compat --write` writes this page.
`make test` runs PySpark 3.5 with its oldest pyarrow, and `make test-all` runs every pair. The pairs
are corners: each PySpark with the oldest and the newest Python and libraries that it takes.
"""
_EXPLANATION = f"""
* `{NOT_RUN}`: the machine that wrote this page has no such Python.
* `{NO_CONNECT}`: this PySpark package does not bring the server of Spark Connect.
* PySpark 3.5 takes no Python above 3.11, and PySpark 4.3 takes no Python 3.10.
* pyarrow 26 requires numpy 2.
* The sidecar is a separate installation; it needs Python 3.11 or newer.
"""


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """A pair with its result; None if the machine lacks its Python."""

    pair: Pair
    result: PairResult | None

    @property
    def cells(self) -> list[str]:
        """The versions, and a cell for each check."""
        outcomes = {} if self.result is None else self.result.outcomes
        return [*self.pair.versions.values(), *(self._cell(outcomes, name) for name in CHECKS)]

    def _cell(self, outcomes: Mapping[str, str | None], check: str) -> str:
        if self.result is None:
            return NOT_RUN
        if check not in outcomes:
            return NO_CONNECT
        return PASSED if outcomes[check] is None else FAILED


def print_matrix(rows: Sequence[MatrixRow]) -> None:
    """Print the matrix, its legend and the errors of failed checks; 80 columns suffice."""
    console = Console(highlight=False, markup=False)
    numbers = [str(number) for number, _ in enumerate(CHECKS, 1)]
    table = Table(*_LIBRARIES, *numbers, box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for row in rows:
        table.add_row(*(_MARKS.get(cell, cell) for cell in row.cells))
    console.print(table)
    legend = ", ".join(f"{number} {name}" for number, name in enumerate(CHECKS, 1))
    marks = ", ".join(f"{mark} {meaning.strip('*')}" for meaning, mark in _MARKS.items())
    console.print(f"{legend}; {marks}")
    for row in rows:
        for check, error in () if row.result is None else row.result.failures.items():
            console.print(f"{row.pair.name}: {check}: {error}")


def page_text(rows: Sequence[MatrixRow]) -> str:
    """The page with the matrix and the meaning of each check."""
    matrix = _markdown(
        [*_LIBRARIES, *(f"`{name}`" for name in CHECKS)], [row.cells for row in rows]
    )
    meanings = _markdown(
        ["check", "passes if"],
        [[f"`{name}`", (check.__doc__ or "").strip()] for name, check in CHECKS.items()],
    )
    return "\n".join([_INTRODUCTION, *matrix, _EXPLANATION, "## Checks", "", *meanings, ""])


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for cells in [head, ["---"] * len(head), *rows]:
        yield f"| {' | '.join(cells)} |"
