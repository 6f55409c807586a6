"""Timing in turn."""

from functools import partial

from bench.timing import Timing, time_in_turn


def test_contenders_run_in_turn() -> None:
    """Each round runs every contender once, after one round that is not counted."""
    order: list[str] = []
    runs = {name: partial(order.append, name) for name in ("a", "b")}

    timings = time_in_turn(runs, rounds=2)

    assert order == ["a", "b"] * 3
    assert [(timing.name, len(timing.seconds)) for timing in timings] == [("a", 2), ("b", 2)]


def test_median_ignores_one_slow_round() -> None:
    """The figure to quote is the median of the counted rounds."""
    assert Timing("a", (1.0, 9.0, 2.0)).median_s == 2.0


def test_slow_contender_may_run_less() -> None:
    """Who takes long is warmed up as the others are, and counted in the first rounds only."""
    order: list[str] = []
    runs = {name: partial(order.append, name) for name in ("a", "slow")}

    timings = time_in_turn(runs, rounds=2, fewer_rounds={"slow": 1})

    assert order == ["a", "slow", "a", "slow", "a"]
    assert [len(timing.seconds) for timing in timings] == [2, 1]


def test_preparation_comes_before_each_run() -> None:
    """What is prepared is prepared for every run, also for those that warm up."""
    order: list[str] = []
    runs = {"a": partial(order.append, "a")}

    time_in_turn(runs, rounds=1, warm_ups=2, before=partial(order.append, "empty"))

    assert order == ["empty", "a"] * 3
