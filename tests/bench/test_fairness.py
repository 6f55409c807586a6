"""The figures of the fairness benchmark."""

from bench.fairness import Phase, phase_ratio


def test_tail_is_compared_with_alone() -> None:
    """A channel whose tail is three times as long as alone has the ratio three."""
    alone, beside = Phase("alone", [0.001] * 100), Phase("beside", [0.003] * 100)

    assert phase_ratio({"alone": alone, "beside": beside}, "beside") == 3.0
    assert beside.percentile_ms(99) == 3.0
