"""The lag is the worst of the recent delays, and is measured while the loop runs."""

import asyncio

from service.observability.event_loop import INTERVAL_S, WINDOW_S, EventLoopLag
from tests.grace import GRACE_S

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
    measuring = asyncio.create_task(lag.run())
    await asyncio.sleep(INTERVAL_S / 2)  # less than a timer of it takes

    _block(INTERVAL_S)
    async with asyncio.timeout(INTERVAL_S + GRACE_S):
        while lag.lag_s < INTERVAL_S / 4:  # noqa: ASYNC110  nobody is told
            await asyncio.sleep(0)

    measuring.cancel()


def _block(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    end_s = loop.time() + seconds
    while loop.time() < end_s:
        pass
