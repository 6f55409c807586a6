"""A blocked loop is told with the place where it hangs, once for each blockage."""

import asyncio
import io
import json
import threading
from collections.abc import Iterator

import pytest
import structlog

from service.observability.event_loop import INTERVAL_S, LATE_S, Watchdog
from service.observability.logs import configure_logs
from tests.hand_clock import HandClock
from tools.processes.until import until


@pytest.fixture
def clock() -> HandClock:
    """The watchdog's clock."""
    return HandClock()


@pytest.fixture
def watchdog(clock: HandClock) -> Watchdog:
    """A watchdog of this thread."""
    return Watchdog(clock)


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """What is logged."""
    stream = io.StringIO()
    configure_logs(stream, level="info")
    yield stream
    structlog.reset_defaults()


def test_punctual_loop_is_not_told(clock: HandClock, watchdog: Watchdog) -> None:
    """A beat that is a little late is no blockage."""
    clock.now_s = INTERVAL_S + LATE_S - 0.01

    assert watchdog.look() is None


def test_blocked_loop_tells_where(clock: HandClock, watchdog: Watchdog) -> None:
    """The stack is that of the watched thread, wherever it is asked for, innermost last."""
    clock.now_s = INTERVAL_S + LATE_S
    seen: list[object] = []
    asking = threading.Thread(target=lambda: seen.append(watchdog.look()))

    asking.start()
    asking.join()

    (frames,) = seen
    assert isinstance(frames, list)
    assert any(frame.endswith(" test_blocked_loop_tells_where") for frame in frames)


def test_blockage_is_told_once(clock: HandClock, watchdog: Watchdog) -> None:
    """The next one is told again, after the loop has run in between."""
    clock.now_s = 10.0
    first, again = watchdog.look(), watchdog.look()
    watchdog.beat()
    running = watchdog.look()
    clock.now_s = 20.0

    assert (first is None, again, running) == (False, None, None)
    assert watchdog.look() is not None


def test_ended_threads_have_no_stack(clock: HandClock) -> None:
    """A thread that is gone has nothing to tell."""
    made: list[Watchdog] = []
    making = threading.Thread(target=lambda: made.append(Watchdog(clock)))
    making.start()
    making.join()
    clock.now_s = 10.0

    assert made[0].look() is None


async def test_running_loop_beats(clock: HandClock, watchdog: Watchdog) -> None:
    """While the loop runs its heartbeat is in time."""
    clock.now_s = 10.0
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await watchdog.run()

    assert watchdog.look() is None


def test_watching_logs_a_blockage(clock: HandClock, watchdog: Watchdog, log: io.StringIO) -> None:
    """The thread speaks while the watched one does nothing else than block."""
    with watchdog.watching() as watched:
        clock.now_s = 10.0
        until(log.getvalue)

    event = json.loads(log.getvalue())
    assert (watched, event["event"]) == (watchdog, "event_loop.blocked")
    # Wherever the thread has looked: it may have done so before this one began to wait.
    assert event["frames"][-1].endswith((" until", " test_watching_logs_a_blockage"))
