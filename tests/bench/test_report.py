"""The figures of a benchmark."""

from bench.report import report_json
from bench.rounds import Timing


def test_ratio_is_rate_against_widen() -> None:
    """A contender that takes twice as long as `widen` has the ratio one half."""
    timings = [Timing("widen", (1.0,)), Timing("other", (2.0,))]

    report = report_json(timings, events=100)

    assert [row["ratio_to_widen"] for row in report] == [1.0, 0.5]
    assert [row["records_per_second"] for row in report] == [100.0, 50.0]
