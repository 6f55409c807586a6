"""The table of all bars."""

import pytest

from bench.section import Bar, Section, all_bars, shortfall_percent, shortfalls


@pytest.mark.parametrize(
    ("figure", "limit", "is_at_least", "percent"),
    [
        (0.85, 0.85, True, 0.0),
        (0.6, 0.8, True, 25.0),
        (2.0, 2.0, False, 0.0),
        (3.0, 2.0, False, 50),
    ],
)
def test_shortfall_is_told_in_percent(
    figure: float, limit: float, *, is_at_least: bool, percent: float
) -> None:
    """A figure at its limit is met; beyond, what lacks is told in percent of the limit."""
    bar = Bar("rate", figure, limit, is_at_least=is_at_least)

    assert shortfall_percent(bar) == pytest.approx(percent)


def test_bars_of_all_sections_are_listed() -> None:
    """Each bar has a row, and one that is missed has its reason beside."""
    met = Section("a", "A", (), bars=[Bar("rate", 0.9, 0.85, shortfall="slow")])
    missed = Section(
        "b", "B", (), bars=[Bar("bytes", 3.0, 2.0, is_at_least=False, shortfall="fat")]
    )

    table = all_bars([met, missed])

    assert table.rows == [
        ("rate", "≥ 0.85", "0.90", "met"),
        ("bytes", "≤ 2", "3.00", "short by 50.0 %"),
    ]
    assert list(shortfalls([met, missed])) == [("bytes", "fat")]
