"""Benchmark page: wrong output and missing parts are reported; partial runs are not published."""

from datetime import date
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from bench.__main__ import print_section, print_summary
from bench.document import Run, document, found_sections, publication
from bench.section import FigureTable, Plot, Section, Target

MACHINE = FigureTable("", ("machine", ""), [("memory", "16 GiB")])


def section(name: str, *, faults: tuple[str, ...] = ()) -> Section:
    """Return a section with a table, a plot and a missed target."""
    return Section(
        name,
        f"About {name}",
        remarks=["How it was measured."],
        tables=[FigureTable("Rates", ("what", "rate"), [("a|b", "1.5")])],
        plots=[Plot(f"{name}-rates", "Rates", "what", "lookups/s", {"warm": [("widen", 1.0)]})],
        targets=[Target(f"{name} against widen", 0.5, 0.85, miss_reason="too slow")],
        faults=faults,
    )


def run(*measured: str, parts: tuple[str, ...] = ("speed", "cold"), is_quick: bool = False) -> Run:
    """Return a run that measured some of the parts."""
    return Run(MACHINE, date(2026, 1, 31), parts, measured, is_quick=is_quick)


def test_page_has_figures_and_reasons() -> None:
    """The page has commands, machine, tables, plots, and the reason of each missed target."""
    page = document([section("speed")], run("speed", "cold"), plots_folder="benchmarks")

    for part in (
        "make bench PART=speed    # one part; parts: speed, cold",
        "| memory | 16 GiB |",
        "A full run of 2026-01-31: 0 of 1 [targets](#targets) are met.",
        "| speed against widen | ≥ 0.85 | 0.50 | short by 41.2 % |",
        "- speed against widen: too slow.",
        "| what | rate |\n| :-- | --: |\n| a\\|b | 1.5 |",
        "![Rates: lookups/s by what of warm](benchmarks/speed-rates.png)",
    ):
        assert part in page
    assert "WRONG" not in page
    assert "Not measured" not in page


def test_page_marks_wrong_and_old_parts() -> None:
    """The page marks wrong output, parts of earlier runs and parts without figures."""
    now = run("cold", parts=("speed", "cold", "http"), is_quick=True)
    wrong = section("cold", faults=("other rows",))

    page = document([section("speed"), wrong], now, plots_folder="p")

    assert "A quick run" in page
    assert "**Not measured in this run:** speed (from an earlier run), http." in page
    assert "## About speed\n\n*From an earlier run.*" in page
    assert "- **WRONG:** other rows" in page


@pytest.mark.parametrize(
    ("now", "faults", "page"),
    [
        (run("speed", "cold"), (), "docs/benchmarks.md"),
        (run("speed"), (), "out/bench/benchmarks.md"),
        (run("speed", "cold", is_quick=True), (), "out/bench/benchmarks.md"),
        (run("speed", "cold"), ("other rows",), "out/bench/benchmarks.md"),
    ],
)
def test_only_full_runs_are_published(
    tmp_path: Path, now: Run, faults: tuple[str, ...], page: str
) -> None:
    """A partial, quick or wrong run changes no documentation; a full one replaces all plots."""
    (tmp_path / "out" / "bench").mkdir(parents=True)
    docs = tmp_path / "docs" / "benchmarks"
    docs.mkdir(parents=True)
    (docs / "gone.png").write_bytes(b"old")

    written = publication([section("speed", faults=faults), section("cold")], now, tmp_path)

    assert written == tmp_path / page
    assert written.read_text().startswith("# Benchmarks")
    is_whole = page.startswith("docs")
    assert (docs / "gone.png").exists() is not is_whole
    assert written.with_suffix("").joinpath("speed-rates.png").is_file()


def test_sections_are_read_as_written(tmp_path: Path) -> None:
    """Sections of parts measured one by one are read in the order of the parts."""
    for name in ("cold", "speed", "unknown"):
        section(name).write(tmp_path)

    found = found_sections(tmp_path, ["speed", "http", "cold"])

    assert [each.name for each in found] == ["speed", "cold"]
    assert found[0].targets == section("speed").targets


@pytest.mark.parametrize("faults", [(), ("[red] rows differ",)])
def test_faults_are_printed(faults: tuple[str, ...]) -> None:
    """The terminal shows tables, missed targets with their reasons, and faults."""
    text = StringIO()
    console, wrong = Console(file=text, width=100), section("speed", faults=faults)

    print_section(console, wrong, seconds=61.4)
    print_summary(console, [wrong], page="out/bench/benchmarks.md")

    printed = text.getvalue()
    assert "speed against widen\n  because too slow" in printed
    assert "short by 41.2 %" in printed
    assert ("WRONG: [red] rows differ" in printed) == bool(faults)
