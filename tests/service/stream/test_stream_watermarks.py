"""The watermark of a dimension's streams, as lists of events with the watermark after each."""

from collections.abc import Callable

import pytest

from lookup_core.dimension.batcher import ChannelId
from lookup_core.event_time.record_watermarks import MAX_WATERMARK_MS
from service.stream.channel_registry import FIRST_WATERMARK_S, StreamWatermarks
from tests.hand_clock import HandClock

Event = Callable[[StreamWatermarks, HandClock], None]
Course = list[tuple[Event, int | None]]


def mark(channel: int, watermark_ms: int) -> Event:
    """A watermark of a channel."""
    return lambda watermarks, _: watermarks.on_watermark(ChannelId(channel), watermark_ms)


def status(channel: int, *, is_idle: bool) -> Event:
    """A channel becomes idle or active."""
    return lambda watermarks, _: watermarks.on_status(ChannelId(channel), is_idle=is_idle)


def add(channel: int, dimension: str = "flights") -> Event:
    """A channel is opened."""
    return lambda watermarks, _: watermarks.opened(ChannelId(channel), dimension)


def drop(channel: int) -> Event:
    """A channel is gone."""
    return lambda watermarks, _: watermarks.dropped(ChannelId(channel))


def wait(seconds: float) -> Event:
    """Time passes."""

    def put_forward(_: StreamWatermarks, clock: HandClock) -> None:
        clock.now_s += seconds

    return put_forward


COURSES: dict[str, Course] = {  # each begins with the open channels 1 and 2 of `flights`
    "least of all channels": [(mark(1, 2_000), None), (mark(2, 1_000), 1_000)],
    "idle channel does not count until it has caught up": [
        (mark(1, 2_000), None),
        (mark(2, 1_000), 1_000),
        (status(2, is_idle=True), 2_000),
        (status(2, is_idle=False), 2_000),
        (mark(2, 1_500), 2_000),
        (mark(1, 3_000), 3_000),
    ],
    "channel without a watermark is passed over": [
        (mark(1, 2_000), None),
        (wait(FIRST_WATERMARK_S - 0.001), None),
        (wait(0.001), 2_000),
    ],
    "late first watermark counts": [
        (mark(1, 2_000), None),
        (wait(FIRST_WATERMARK_S), 2_000),
        (mark(2, 2_500), 2_000),
        (mark(1, 3_000), 2_500),
    ],
    "idle state is kept while passed over": [
        (mark(1, 2_000), None),
        (wait(FIRST_WATERMARK_S), 2_000),
        (status(2, is_idle=True), 2_000),
        (mark(2, 2_500), 2_000),
        (mark(1, 3_000), 3_000),
    ],
    "maximal watermark ends a channel and is no time": [
        (mark(1, 2_000), None),
        (mark(2, 1_000), 1_000),
        (mark(2, MAX_WATERMARK_MS), 2_000),
        (mark(2, 2_100), 2_000),
        (mark(1, 3_000), 3_000),
        (mark(1, MAX_WATERMARK_MS), 3_000),
    ],
    "closed channel does not count": [
        (mark(1, 2_000), None),
        (mark(2, 1_000), 1_000),
        (drop(2), 2_000),
        (drop(2), 2_000),
    ],
    "new channel over older data takes nothing back": [
        (mark(1, 2_000), None),
        (drop(2), 2_000),
        (add(3), 2_000),
        (mark(3, 10), 2_000),
    ],
    "last figure stays until the next channels have one": [
        (mark(1, 2_000), None),
        (drop(2), 2_000),
        (drop(1), 2_000),
        (add(3), 2_000),
        (mark(3, 10), 10),
    ],
    "other dimensions do not count": [
        (mark(1, 2_000), None),
        (add(3, "planes"), None),
        (mark(3, 5), None),
        (mark(2, 1_000), 1_000),
    ],
}


@pytest.mark.parametrize("course", COURSES.values(), ids=list(COURSES))
def test_watermark_follows_the_channels(course: Course) -> None:
    """After each event the watermark is the least of the channels in the valve."""
    clock = HandClock(100.0)
    watermarks = StreamWatermarks(clock=clock)
    for channel in (1, 2):
        watermarks.opened(ChannelId(channel), "flights")

    shown = []
    for event, _ in course:
        event(watermarks, clock)
        watermarks.check_invariants()
        shown.append(watermarks.watermarks_ms().get("flights"))

    assert shown == [expected for _, expected in course]


def test_channels_that_ended_take_no_memory() -> None:
    """Thousands of channels come and go next to one that stays."""
    watermarks = StreamWatermarks(clock=HandClock())
    watermarks.opened(ChannelId(1), "flights")
    watermarks.on_watermark(ChannelId(1), 2_000)

    for number in range(10, 5_000):
        watermarks.opened(ChannelId(number), "flights")
        watermarks.on_watermark(ChannelId(number), 2_000 + number)
        watermarks.dropped(ChannelId(number))

    watermarks.check_invariants()
    assert (len(watermarks._channels), len(watermarks._waiting)) == (1, 0)
