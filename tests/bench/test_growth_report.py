"""The section about growth."""

import pytest

from bench.growth_cases import CaseFigures, Growth, LoadCase, LoadRound, cached_rows, small_growths
from bench.growth_report import MeasuredGrowth, growth_report
from bench.lookup_load import LoadSpan


def _measured(growth: Growth, *, uncached: int) -> MeasuredGrowth:
    """Whatever grows, a batch of x keys takes 1 ms and 1 µs for each key of it."""

    def figures(case: LoadCase) -> CaseFigures:
        seconds = 1e-3 + case.x * 1e-6
        span = LoadSpan(0.0, seconds, seconds / 2, case.x, case.x - uncached, row_bytes=8)
        return CaseFigures(case, [LoadRound((span,), sidecar_cpu_s=seconds)])

    return MeasuredGrowth(growth, [figures(case) for case in growth.cases])


def _all(*, uncached: int = 0) -> list[MeasuredGrowth]:
    growths = [*small_growths("unix:///s", 10**6), cached_rows("unix:///s", 10**6, largest=10**6)]
    return [_measured(growth, uncached=uncached) for growth in growths]


def test_bar_is_all_channels_against_one() -> None:
    """The promise is about processes with a channel each."""
    (bar,) = growth_report(_all(), rounds=5).bars

    assert bar.figure == pytest.approx((64 / 1.064e-3) / (1 / 1.001e-3))
    assert bar.is_met


def test_cost_of_a_batch_is_told() -> None:
    """What does not depend on the number of keys is told apart from what does."""
    remarks = growth_report(_all(), rounds=5).remarks

    assert remarks[2].endswith(
        "costs the sidecar 1,000 µs of processor time, and each of its keys 1,000 ns."
    )
    assert remarks[3].endswith(
        "costs the client 500 µs of processor time, and each of its keys 500 ns."
    )


def test_each_growth_has_table_and_plot() -> None:
    """The columns have a second plot: their rate falls, but that of their bytes need not."""
    section = growth_report(_all(), rounds=5)

    kinds = ["channels", "dimensions", "batches", "columns", "rows"]
    assert [plot.name for plot in section.plots] == [f"growth-{x}" for x in [*kinds, "bytes"]]
    assert len(section.tables) == len(kinds)
    assert section.faults == []


def test_uncached_keys_are_a_fault() -> None:
    """A cache that did not answer was not the load that the figures claim."""
    faults = growth_report(_all(uncached=1), rounds=5).faults

    assert faults[0] == "1 channels: the cache did not answer 1 keys"
