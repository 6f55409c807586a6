"""What the load over HTTP comes to."""

from bench.http_cases import HUNDRED, ONE
from bench.http_load import Duel, section
from bench.wrk import WrkFigures


def run(requests: int, p99_us: int) -> WrkFigures:
    """A second of load."""
    return WrkFigures(requests, 1_000_000, p50_us=1, p99_us=p99_us, refused=0, broken=0)


def test_ratios_are_of_medians() -> None:
    """Rate and tail of a case are compared by the medians of its runs."""
    sidecar, bare = [run(80, 30), run(10, 90), run(90, 20)], [run(100, 10)] * 3

    duel = Duel(ONE, sidecar, bare)

    assert (duel.rate_ratio, duel.tail_ratio) == (0.8, 3.0)


def test_bars_are_of_one_key() -> None:
    """One key has a bar for its rate and one for its tail; the others are told only."""
    one, many = Duel(ONE, [run(80, 30)], [run(100, 10)]), Duel(HUNDRED, [run(1, 9)], [run(5, 3)])

    found = section([one, many], faults=[])

    assert [(bar.figure, bar.limit, bar.is_met) for bar in found.bars] == [
        (0.8, 0.7, True),
        (3.0, 1.5, False),
    ]
    assert found.tables[0].rows == [
        [ONE, "80", "100", "0.80", "0.03", "0.01", "3.00"],
        [HUNDRED, "1", "5", "0.20", "0.01", "0.00", "3.00"],
    ]
