"""What a part of the benchmark found."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from bench.section import Bar, FigureTable, Plot, Section


def test_section_is_read_as_written(tmp_path: Path) -> None:
    """A section comes back from its file with all that it had."""
    section = Section(
        "speed",
        "Speed",
        remarks=["how"],
        tables=[FigureTable("rates", ["who", "rate"], [["widen", "1"]])],
        plots=[Plot("speed", "Speed", "who", "rate", {"warm": [("widen", 1.0)]})],
        bars=[Bar("rate", 0.9, 0.85)],
        faults=["other rows"],
    )

    section.write(tmp_path)

    found = Section.read(tmp_path / "speed.json")
    assert json.dumps(asdict(found)) == json.dumps(asdict(section))  # pairs come back as lists
    assert found.bars == section.bars


@pytest.mark.parametrize(
    ("is_at_least", "met"), [(True, [False, True, True]), (False, [True, True, False])]
)
def test_figure_at_the_limit_is_met(*, is_at_least: bool, met: list[bool]) -> None:
    """What is promised as least or as most includes the limit itself."""
    bars = [Bar("b", figure, 2.0, is_at_least=is_at_least) for figure in (1.9, 2.0, 2.1)]

    assert [bar.is_met for bar in bars] == met
