"""Watermark of a dimension: minimum over splits, idle splits, and event-time alignment."""

import pytest

from lookup_core.event_time.split_watermarks import SplitWatermarks, splits_ahead
from lookup_core.event_time.watermark_valve import NO_WATERMARK_MS, ChannelTime

IDLE_AFTER_S = 5.0


def watermarks_of(*split_ids: str) -> SplitWatermarks:
    """Splits that are added at 0 s."""
    watermarks = SplitWatermarks(IDLE_AFTER_S)
    for split_id in split_ids:
        watermarks.add(split_id, 0.0)
    return watermarks


def report(
    watermarks: SplitWatermarks,
    split_id: str,
    watermark_ms: int = NO_WATERMARK_MS,
    *,
    now: float = 0.0,
    is_caught_up: bool = True,
    has_changes: bool = False,
) -> None:
    """A split reports a piece."""
    watermarks.on_piece(
        split_id,
        watermark_ms=watermark_ms,
        has_changes=has_changes,
        is_caught_up=is_caught_up,
        now=now,
    )
    watermarks.check_invariants()


def test_slowest_split_sets_the_watermark() -> None:
    """The watermark is the smallest one, and there is none before each split has one."""
    watermarks = watermarks_of("a", "b")
    report(watermarks, "a", 100)
    before = watermarks.valve.watermark_ms
    report(watermarks, "b", 50)

    assert (before, watermarks.valve.watermark_ms) == (NO_WATERMARK_MS, 50)
    assert watermarks.active_ms() == {"a": 100, "b": 50}


def test_silent_split_becomes_idle() -> None:
    """A split that is caught up and has no news for 5 s is idle and delays no watermark."""
    watermarks = watermarks_of("a", "b")
    report(watermarks, "b", now=0.0)
    report(watermarks, "a", 100, now=4.0)

    deadlines = [watermarks.next_deadline()]
    watermarks.expire(4.9)
    before = watermarks.valve.watermark_ms, watermarks.active_ms()
    watermarks.expire(5.0)
    deadlines.append(watermarks.next_deadline())

    assert before == (NO_WATERMARK_MS, {"a": 100, "b": NO_WATERMARK_MS})
    assert (watermarks.valve.watermark_ms, watermarks.active_ms()) == (100, {"a": 100})
    assert deadlines == [5.0, 9.0]


def test_split_behind_is_never_idle() -> None:
    """A split that is not caught up, or has no piece yet, stays active."""
    watermarks = watermarks_of("a", "b", "c")
    report(watermarks, "a", 100, is_caught_up=False)
    report(watermarks, "c", 100, now=1.0)

    watermarks.expire(1e6)

    assert watermarks.active_ms() == {"a": 100, "b": NO_WATERMARK_MS}
    assert watermarks.next_deadline() is None


def test_only_news_makes_active() -> None:
    """A change or a later watermark makes a split active, an empty piece does not."""
    watermarks = watermarks_of("a")
    report(watermarks, "a", 100, now=0.0)
    report(watermarks, "a", 100, now=4.0)
    watermarks.expire(5.0)
    report(watermarks, "a", 100, now=6.0)
    idle = [watermarks.valve.is_idle]
    deadlines = [watermarks.next_deadline()]
    report(watermarks, "a", 100, now=7.0, has_changes=True)
    idle.append(watermarks.valve.is_idle)
    watermarks.expire(12.0)
    report(watermarks, "a", 200, now=13.0)

    assert [*idle, watermarks.valve.is_idle] == [True, False, False]
    assert [*deadlines, watermarks.next_deadline()] == [None, 18.0]
    assert watermarks.valve.watermark_ms == 200


def test_failed_split_is_active() -> None:
    """A split that fails is active until it is read to its end again."""
    watermarks = watermarks_of("a")
    report(watermarks, "a", 100)
    watermarks.expire(5.0)
    watermarks.on_failure("a")
    watermarks.expire(1e6)
    failed = watermarks.time_of("a")
    report(watermarks, "a", 100, now=1e6)
    watermarks.expire(1e6)

    assert failed == ChannelTime(100, is_idle=False, is_aligned=True)
    assert watermarks.time_of("a") == ChannelTime(100, is_idle=True, is_aligned=False)


def test_paused_split_is_active() -> None:
    """The silence of a split starts when its pause ends."""
    watermarks = watermarks_of("a")
    report(watermarks, "a", 100)

    watermarks.expire(5.0, paused={"a"})
    paused = watermarks.valve.is_idle, watermarks.next_deadline()
    watermarks.expire(10.0)

    assert (paused, watermarks.valve.is_idle) == ((False, 10.0), True)


def test_removed_split_is_forgotten() -> None:
    """A split that is removed, once or twice, delays no watermark; adding twice is harmless."""
    watermarks = watermarks_of("a", "b")
    report(watermarks, "a", 100)
    watermarks.remove("b")
    watermarks.remove("b")
    watermarks.add("a", 9.0)

    assert (watermarks.valve.watermark_ms, watermarks.time_of("b")) == (100, None)
    assert watermarks.active_ms() == {"a": 100}


@pytest.mark.parametrize(
    ("watermarks", "ahead"),
    [
        ({"a": 100, "b": 150, "c": 151}, {"c"}),
        ({"a": 101, "b": 150, "c": 151}, set()),
        ({"a": NO_WATERMARK_MS, "b": 100, "c": 200}, {"c"}),
        ({"a": NO_WATERMARK_MS}, set()),
        ({}, set()),
    ],
)
def test_splits_beyond_the_drift_wait(watermarks: dict[str, int], ahead: set[str]) -> None:
    """A split more than 50 ms ahead is paused; one without a watermark does not count."""
    assert splits_ahead(watermarks, 50) == ahead
