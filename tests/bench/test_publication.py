"""Where the page of a run goes."""

from pathlib import Path

import pytest

from bench.document import Run, publication
from tests.bench.sections import run, section


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout whose documentation has a page and a plot."""
    (tmp_path / "out" / "bench").mkdir(parents=True)
    (tmp_path / "docs" / "benchmarks").mkdir(parents=True)
    (tmp_path / "docs" / "benchmarks.md").write_text("old")
    (tmp_path / "docs" / "benchmarks" / "gone.png").write_bytes(b"old")
    return tmp_path


def test_whole_run_is_documented(root: Path) -> None:
    """A full run of all parts writes the documentation's page, and plots that are no more go."""
    page = publication([section("speed"), section("cold")], run("speed", "cold"), root)

    assert page == root / "docs" / "benchmarks.md"
    assert page.read_text().startswith("# Benchmarks")
    plots = sorted(path.name for path in (root / "docs" / "benchmarks").iterdir())
    assert plots == ["cold-rates.png", "speed-rates.png"]


@pytest.mark.parametrize(
    ("now", "faults"),
    [
        (run("speed"), ()),
        (run("speed", "cold", is_quick=True), ()),
        (run("speed", "cold"), ("other rows",)),
    ],
)
def test_other_runs_change_no_documentation(root: Path, now: Run, faults: tuple[str, ...]) -> None:
    """One part, a quick run or a wrong one is written beside what was built."""
    page = publication([section("speed", faults=faults), section("cold")], now, root)

    assert page == root / "out" / "bench" / "benchmarks.md"
    assert (root / "out" / "bench" / "benchmarks" / "speed-rates.png").is_file()
    assert (root / "docs" / "benchmarks.md").read_text() == "old"
    assert (root / "docs" / "benchmarks" / "gone.png").is_file()
