"""Where the page of a run goes: to the documentation, if it is whole and right, else to `out/`.

Writes the page and its plots; nothing else below `docs/` is touched.
"""

from collections.abc import Sequence
from pathlib import Path

from bench.document import Run, document
from bench.plots import plots
from bench.section import Section

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
