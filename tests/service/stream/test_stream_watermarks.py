"""How far the event time of the streams is, told as courses of events."""

import pytest

from lookup_core.dimension.batcher import ChannelId
from lookup_core.operator.event_time_watermarks import MAX_WATERMARK_MS
from service.stream.channel_registry import FIRST_WATERMARK_S, StreamWatermarks
from tests.hand_clock import HandClock

FIRST, SECOND, THIRD = ChannelId(1), ChannelId(2), ChannelId(3)


@pytest.fixture
def clock() -> HandClock:
    """The time of the test."""
    return HandClock(100.0)


@pytest.fixture
def watermarks(clock: HandClock) -> StreamWatermarks:
    """Two channels of one dimension."""
    watermarks = StreamWatermarks(clock=clock)
    watermarks.opened(FIRST, "flights")
    watermarks.opened(SECOND, "flights")
    return watermarks


def at(watermarks: StreamWatermarks) -> int | None:
    """The watermark of the only dimension."""
    watermarks.check_invariants()
    return watermarks.watermarks_ms().get("flights")


def test_least_of_all_channels_is_told(watermarks: StreamWatermarks) -> None:
    """Nothing until every channel has spoken; then the least, whoever was first."""
    watermarks.on_watermark(FIRST, 2_000)
    assert at(watermarks) is None

    watermarks.on_watermark(SECOND, 1_000)

    assert at(watermarks) == 1_000


def test_idle_channel_holds_nothing_back(watermarks: StreamWatermarks) -> None:
    """It counts again when it is active and has caught up."""
    watermarks.on_watermark(FIRST, 2_000)
    watermarks.on_watermark(SECOND, 1_000)

    watermarks.on_status(SECOND, is_idle=True)
    assert at(watermarks) == 2_000
    watermarks.on_status(SECOND, is_idle=False)
    watermarks.on_watermark(SECOND, 1_500)
    watermarks.on_watermark(FIRST, 3_000)
    assert at(watermarks) == 3_000


def test_wordless_channel_is_passed_over(watermarks: StreamWatermarks, clock: HandClock) -> None:
    """Who has told no watermark for so long is taken for one without event time."""
    watermarks.on_watermark(FIRST, 2_000)

    clock.now_s += FIRST_WATERMARK_S - 0.001
    assert at(watermarks) is None
    clock.now_s += 0.001
    assert at(watermarks) == 2_000


def test_late_first_watermark_still_counts(watermarks: StreamWatermarks, clock: HandClock) -> None:
    """A channel that was passed over has its say from its first watermark on."""
    watermarks.on_watermark(FIRST, 2_000)
    clock.now_s += FIRST_WATERMARK_S

    watermarks.on_watermark(SECOND, 2_500)
    watermarks.on_watermark(FIRST, 3_000)

    assert at(watermarks) == 2_500


def test_status_is_known_from_before_the_say(
    watermarks: StreamWatermarks, clock: HandClock
) -> None:
    """A channel that fell idle after it was passed over holds nothing back by a stray watermark."""
    watermarks.on_watermark(FIRST, 2_000)
    clock.now_s += FIRST_WATERMARK_S
    assert at(watermarks) == 2_000

    watermarks.on_status(SECOND, is_idle=True)
    watermarks.on_watermark(SECOND, 2_500)
    watermarks.on_watermark(FIRST, 3_000)

    assert at(watermarks) == 3_000


def test_end_of_input_holds_nothing_back(watermarks: StreamWatermarks) -> None:
    """The maximal watermark ends a channel's say, whatever it tells after it; it is no time."""
    watermarks.on_watermark(FIRST, 2_000)
    watermarks.on_watermark(SECOND, 1_000)

    watermarks.on_watermark(SECOND, MAX_WATERMARK_MS)
    assert at(watermarks) == 2_000
    watermarks.on_watermark(SECOND, 2_100)
    watermarks.on_watermark(FIRST, 3_000)
    assert at(watermarks) == 3_000
    watermarks.on_watermark(FIRST, MAX_WATERMARK_MS)
    assert at(watermarks) == 3_000


def test_closed_channel_holds_nothing_back(watermarks: StreamWatermarks) -> None:
    """What goes, with or without an end of its input, is forgotten, once."""
    watermarks.on_watermark(FIRST, 2_000)
    watermarks.on_watermark(SECOND, 1_000)

    watermarks.dropped(SECOND)
    watermarks.dropped(SECOND)

    assert at(watermarks) == 2_000


def test_nothing_goes_back_while_channels_are_open(watermarks: StreamWatermarks) -> None:
    """A newcomer over older data is not counted before it has caught up."""
    watermarks.on_watermark(FIRST, 2_000)
    watermarks.dropped(SECOND)

    watermarks.opened(THIRD, "flights")
    watermarks.on_watermark(THIRD, 10)

    assert at(watermarks) == 2_000


def test_last_channel_ends_the_generation(watermarks: StreamWatermarks) -> None:
    """The last figure stays until the next channels have one, over older data as well."""
    watermarks.on_watermark(FIRST, 2_000)
    watermarks.dropped(SECOND)
    watermarks.dropped(FIRST)
    assert at(watermarks) == 2_000

    watermarks.opened(THIRD, "flights")
    assert at(watermarks) == 2_000
    watermarks.on_watermark(THIRD, 10)
    assert at(watermarks) == 10


def test_dimensions_have_times_of_their_own(watermarks: StreamWatermarks) -> None:
    """A channel has no say about another dimension."""
    watermarks.opened(THIRD, "planes")

    watermarks.on_watermark(THIRD, 5)

    assert watermarks.watermarks_ms() == {"planes": 5}


def test_channels_that_went_leave_no_memory(watermarks: StreamWatermarks) -> None:
    """Thousands come and go beside one that stays, and nothing of them is kept."""
    watermarks.on_watermark(FIRST, 2_000)

    for number in range(10, 5_000):
        watermarks.opened(ChannelId(number), "flights")
        watermarks.on_watermark(ChannelId(number), 2_000 + number)
        watermarks.dropped(ChannelId(number))

    watermarks.check_invariants()
    assert (len(watermarks._channels), len(watermarks._unheard)) == (2, 1)
