"""What people see while a benchmark runs."""

from io import StringIO

from rich.console import Console

from bench.printout import Printout
from tests.bench.sections import section


def _printed(*, faults: tuple[str, ...] = ()) -> str:
    text = StringIO()
    printout = Printout(Console(file=text, width=100))
    found = section("speed", faults=faults)
    printout.on_part("speed")
    printout.on_section(found, seconds=61.4)
    printout.on_end([found], page="out/bench/benchmarks.md")
    return text.getvalue()


def test_tables_and_missed_bars_are_printed() -> None:
    """A part's tables come with it, and at the end all bars with what they lack, and why."""
    printed = _printed()

    assert "Rates" in printed
    assert "short by 41.2 %" in printed
    assert "speed against widen\n  because too slow" in printed
    assert "61 s" in printed
    assert "written: out/bench/benchmarks.md" in printed
    assert "WRONG" not in printed


def test_faults_are_printed() -> None:
    """What is wrong is told as such, brackets included."""
    assert "WRONG: [red] rows differ" in _printed(faults=("[red] rows differ",))


def test_broken_part_shows_its_exception() -> None:
    """A part that broke says where."""
    text = StringIO()
    try:
        int("no number")
    except ValueError:
        Printout(Console(file=text, width=100)).on_failure()

    assert "no number" in text.getvalue()
