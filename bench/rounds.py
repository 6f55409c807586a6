"""Timing of contenders in turn, so that a machine whose speed drifts does so for all of them.

Only seconds and their medians; what runs is the caller's business.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """The seconds of one contender's counted rounds, in order."""

    name: str
    seconds: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """The figure to quote."""
        return statistics.median(self.seconds)


def time_in_turn(runs: Mapping[str, Callable[[], None]], *, rounds: int) -> list[Timing]:
    """Run all once to warm up, then `rounds` times in turn, A B C A B C, and time those."""
    for run in runs.values():
        run()
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            started_s = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - started_s)
    return [Timing(name, tuple(each)) for name, each in seconds.items()]
