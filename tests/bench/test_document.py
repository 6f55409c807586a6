"""The page of a benchmark."""

from pathlib import Path

from bench.document import document, found_sections
from tests.bench.sections import run, section


def test_page_begins_with_commands_and_machine() -> None:
    """A reader first learns how to repeat it, on what it was measured, and the bars."""
    page = document([section("speed")], run("speed", "cold"), plots_folder="benchmarks")

    headings = [line for line in page.splitlines() if line.startswith("#")]
    assert headings == ["# Benchmarks", "## Bars", "## About speed", "### Rates"]
    assert "make bench PART=speed    # one part; parts: speed, cold" in page
    assert "| memory | 16 GiB |" in page
    assert "A full run of 2026-01-31: 0 of 1 [bars](#bars) are met." in page
    assert "| speed against widen | ≥ 0.85 | 0.50 | short by 41.2 % |" in page
    assert "- speed against widen: too slow." in page


def test_tables_and_plots_are_shown() -> None:
    """Figures stand on the right, a bar in a cell is no cell's end, and a plot is told in words."""
    page = document([section("speed")], run("speed", "cold"), plots_folder="benchmarks")

    assert "| who | rate |\n| :-- | --: |\n| a\\|b | 1.5 |" in page
    assert "![Rates: lookups/s by who of warm](benchmarks/speed-rates.png)" in page


def test_wrong_output_is_shouted() -> None:
    """What was wrong, and not slow, stands on the page."""
    page = document([section("speed", faults=("other rows",))], run("speed"), plots_folder="p")

    assert "- **WRONG:** other rows" in page


def test_page_says_what_was_not_measured() -> None:
    """A part of an earlier run is told from one that has no figures at all."""
    now = run("cold", parts=("speed", "cold", "http"), is_quick=True)

    page = document([section("speed"), section("cold")], now, plots_folder="p")

    assert "A quick run" in page
    assert "**Not measured in this run:** speed (an earlier run's), http." in page
    assert "## About speed\n\n*From an earlier run.*" in page
    assert "## About cold\n\nHow" in page


def test_whole_run_omits_nothing() -> None:
    """Where all parts were measured, the page does not speak of others."""
    page = document([section("speed"), section("cold")], run("speed", "cold"), plots_folder="p")

    assert "A full run of" in page
    assert "Not measured" not in page


def test_sections_are_found_by_part(tmp_path: Path) -> None:
    """Files are read in the order of the parts; others are left alone."""
    for name in ("cold", "speed", "unknown"):
        section(name).write(tmp_path)

    found = found_sections(tmp_path, ["speed", "http", "cold"])

    assert [each.name for each in found] == ["speed", "cold"]
