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


def time_in_turn(
    runs: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    warm_ups: int = 1,
    fewer_rounds: Mapping[str, int] | None = None,
    before: Callable[[], object] | None = None,
) -> list[Timing]:
    """Run all `warm_ups` times, then `rounds` times in turn, A B C A B C, and time those.

    `fewer_rounds`: of those that take long, by name; they take part in the first rounds.
    `before`: done before each run, and not timed.
    """
    counted = dict.fromkeys(runs, rounds) | dict(fewer_rounds or {})
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(-warm_ups, rounds):
        for name, run in runs.items():
            if number < counted[name]:
                elapsed_s = _timed(run, before)
                seconds[name] += [elapsed_s] if number >= 0 else []
    return [Timing(name, tuple(each)) for name, each in seconds.items()]


def _timed(run: Callable[[], object], before: Callable[[], object] | None) -> float:
    if before is not None:
        before()
    started_s = time.perf_counter()
    run()
    return time.perf_counter() - started_s
