"""The figures for people and for programs: rates, and their ratio to `widen`.

A rate alone says what machine it was; the ratio says what the lookup costs.
"""

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from bench.rounds import Timing

REFERENCE = "widen"


def report_table(keys: str, timings: Sequence[Timing], *, events: int) -> Table:
    """One kind of key, a row a contender."""
    table = Table("contender", title=f"warm, {keys} keys", title_justify="left")
    for heading in ("records/s", "to widen", "seconds, each round"):
        table.add_column(heading, justify="right")
    for timing in timings:
        rounds = " ".join(f"{seconds:.2f}" for seconds in timing.seconds)
        rate = f"{events / timing.median_s:,.0f}"
        table.add_row(timing.name, rate, f"{_ratio(timing, timings):.2f}", rounds)
    return table


def report_json(timings: Sequence[Timing], *, events: int) -> list[dict[str, Any]]:
    """The same, as it is written to the file."""
    return [
        {
            "contender": timing.name,
            "seconds": list(timing.seconds),
            "records_per_second": events / timing.median_s,
            "ratio_to_widen": _ratio(timing, timings),
        }
        for timing in timings
    ]


def _ratio(timing: Timing, timings: Sequence[Timing]) -> float:
    reference = next(each for each in timings if each.name == REFERENCE)
    return reference.median_s / timing.median_s
