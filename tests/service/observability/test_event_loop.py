"""The event loop: the lag of its timers, and the stack of a blockage."""

import asyncio
import io
import json
import threading
import time

import pytest

from service.observability.event_loop import INTERVAL_S, LAG_WINDOW_S, LATE_S, Watchdog
from service.observability.logs import configure_logs
from tests.hand_clock import HandClock
from tools.processes.until import until

PATIENCE_S = 20.0


@pytest.fixture
def clock() -> HandClock:
    """The clock of the watchdog."""
    return HandClock()


@pytest.fixture
def watchdog(clock: HandClock) -> Watchdog:
    """A watchdog of this thread."""
    return Watchdog(clock)


@pytest.fixture
def log(logging_as_before: None) -> io.StringIO:  # noqa: ARG001
    """The log."""
    stream = io.StringIO()
    configure_logs(stream, level="info")
    return stream


def test_lag_is_the_worst_recent_delay(watchdog: Watchdog) -> None:
    """The lag starts at 0, early timers count as 0, and old delays leave the window."""
    lags = [watchdog.lag_s]
    for delay_s in (-0.001, 0.01, 0.7, *[0.02] * round(LAG_WINDOW_S / INTERVAL_S - 1), 0.01):
        watchdog.record(delay_s)
        lags.append(watchdog.lag_s)

    assert lags[:4] == [0.0, 0.0, 0.01, 0.7]
    assert lags[-2:] == [0.7, 0.02]


async def test_lag_shows_a_blocked_loop() -> None:
    """A loop that is blocked runs its timers late."""
    watchdog = Watchdog()
    measuring = asyncio.create_task(watchdog.run())
    await asyncio.sleep(0)  # its first timer is set

    end_s = time.monotonic() + 1.5 * INTERVAL_S
    while time.monotonic() < end_s:
        pass

    async with asyncio.timeout(PATIENCE_S):
        while watchdog.lag_s < INTERVAL_S / 4:  # noqa: ASYNC110  nothing signals it
            await asyncio.sleep(0)
    measuring.cancel()


def test_late_beat_is_a_blockage(clock: HandClock, watchdog: Watchdog) -> None:
    """The stack of the watched thread is returned to any thread, once per blockage."""
    clock.now_s = INTERVAL_S + LATE_S - 0.01
    seen = [watchdog.check()]
    clock.now_s = INTERVAL_S + LATE_S
    looking = threading.Thread(target=lambda: seen.append(watchdog.check()))
    looking.start()
    looking.join()
    seen.append(watchdog.check())
    watchdog.beat()
    seen.append(watchdog.check())
    clock.now_s = 20.0
    seen.append(watchdog.check())

    assert [frames is not None for frames in seen] == [False, True, False, False, True]
    assert any(frame.endswith(" test_late_beat_is_a_blockage") for frame in seen[1] or ())


async def test_running_loops_are_not_blocked(clock: HandClock, watchdog: Watchdog) -> None:
    """A running loop is not blocked, and neither is a thread that has ended."""
    made: list[Watchdog] = []
    making = threading.Thread(target=lambda: made.append(Watchdog(clock)))
    making.start()
    making.join()
    clock.now_s = 10.0
    beating = asyncio.create_task(watchdog.run())
    await asyncio.sleep(0)
    beating.cancel()

    assert (made[0].check(), watchdog.check()) == (None, None)


def test_blockage_is_logged(clock: HandClock, watchdog: Watchdog, log: io.StringIO) -> None:
    """The watching thread logs the place while the watched thread is blocked."""
    with watchdog.watching() as watched:
        clock.now_s = 10.0
        until(log.getvalue)

    event = json.loads(log.getvalue())
    assert (watched, event["event"]) == (watchdog, "event_loop.blocked")
    # The thread may have looked before this one began to wait.
    assert event["frames"][-1].endswith((" until", " test_blockage_is_logged"))
