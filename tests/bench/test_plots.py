"""Pictures of figures."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from bench.plots import plots
from bench.section import Plot, Section

Series = Mapping[str, Sequence[tuple[float | str, float]]]
BARS: Series = {
    "Zipf": [("identity", 1.2), ("widen", 1.0), ("a contender with a rather long name", 0.02)],
    "uniform": [("identity", 1.1), ("widen", 1.0), ("a contender with a rather long name", 0.01)],
}
LINES: Series = {"one process": [(64, 2e5), (1, 6e5), (8, 5.5e5)], "many": [(1, 6e5), (64, 5e5)]}


def _section(series: Series, *, is_log_x: bool = False) -> Section:
    plot = Plot("rates", "Rates", "who", "lookups/s", series, is_log_x=is_log_x)
    return Section("speed", "Speed", (), plots=[plot])


@pytest.mark.parametrize(("series", "is_log_x"), [(BARS, False), (LINES, False), (LINES, True)])
def test_plot_is_a_small_picture(tmp_path: Path, series: Series, *, is_log_x: bool) -> None:
    """Names become bars and numbers lines, in a PNG that a page can afford."""
    written = plots([_section(series, is_log_x=is_log_x)], tmp_path / "new")

    assert written == [tmp_path / "new" / "rates.png"]
    assert written[0].read_bytes().startswith(b"\x89PNG")
    assert 5_000 < written[0].stat().st_size < 80_000


def test_same_figures_make_the_same_picture(tmp_path: Path) -> None:
    """A run that found the same changes no file."""
    first, second = (plots([_section(LINES)], tmp_path / name)[0] for name in ("a", "b"))

    assert first.read_bytes() == second.read_bytes()
