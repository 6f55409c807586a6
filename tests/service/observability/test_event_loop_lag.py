"""The lag is the worst of the recent delays, and is measured while the loop runs."""

import asyncio

import pytest

from service.observability.event_loop_lag import INTERVAL_S, WINDOW_S, EventLoopLag

WINDOW = round(WINDOW_S / INTERVAL_S)


def test_lag_is_the_worst_delay() -> None:
    """One late timer is not averaged away by many punctual ones."""
    lag = EventLoopLag()

    for delay_s in (0.01, 0.7, 0.02):
        lag.record(delay_s)

    assert lag.lag_s == 0.7


def test_lag_is_zero_before_measuring() -> None:
    """Nothing is claimed before the first delay is known."""
    assert EventLoopLag().lag_s == 0.0


def test_old_delays_leave_the_window() -> None:
    """A delay is forgotten once a whole window of newer ones is known."""
    lag = EventLoopLag()
    lag.record(0.7)

    for _ in range(WINDOW):
        lag.record(0.01)

    assert lag.lag_s == 0.01


def test_early_timers_are_not_negative_lag() -> None:
    """A timer that fires early by the clock's resolution counts as punctual."""
    lag = EventLoopLag()

    lag.record(-0.001)

    assert lag.lag_s == 0.0


async def test_running_notices_a_blocked_loop() -> None:
    """While something blocks the loop, the timer is late by as much."""
    lag = EventLoopLag()
    asyncio.get_running_loop().call_later(INTERVAL_S / 2, _block, INTERVAL_S)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2 * INTERVAL_S):
            await lag.run()

    assert lag.lag_s >= INTERVAL_S / 4


def _block(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    end_s = loop.time() + seconds
    while loop.time() < end_s:
        pass
