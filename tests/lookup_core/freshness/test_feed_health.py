"""Feed health: whether the cache may be served, and how far its rows may lag their table."""

from typing import Any

import pytest

from lookup_core.freshness.feed_health import FeedHealth, FeedState, staleness_limit_s
from lookup_core.settings import (
    CacheMode,
    CacheSettings,
    DimensionSettings,
    FeedSettings,
    FullSettings,
    ReloadSettings,
)

Piece = dict[str, Any]  # what differs from a piece at the end of its split

STARTING, LIVE, SILENT = FeedState.STARTING, FeedState.LIVE, FeedState.SILENT
FULL = CacheSettings(mode=CacheMode.FULL)
STALE = CacheSettings(ttl_s=60.0, stale_while_revalidate_s=5.0, stale_if_error_s=9.0)


LATE: Piece = {"is_caught_up": False}
CAUGHT_UP: Piece = {}


def read(health: FeedHealth, split_id: str, now: float, piece: Piece = CAUGHT_UP) -> FeedState:
    """A split is read, by default to its end; the state after it."""
    read_to_the_end: Piece = {"is_caught_up": True, "silent_s": 0.0, "source_age_s": None}
    health.on_piece(split_id, now=now, **(read_to_the_end | piece))
    return health.state(now)


@pytest.fixture
def live() -> FeedHealth:
    """A feed of two splits, live at 1 s, which may be silent for 10 s."""
    health = FeedHealth(FeedSettings())
    health.on_splits(["a", "b"], 0.0)
    assert [read(health, split_id, 1.0) for split_id in "ab"] == [STARTING, LIVE]
    return health


@pytest.mark.parametrize(
    ("splits", "steps"),
    [
        ("ab", [("b", 2.0, LATE, STARTING), ("a", 2.0, CAUGHT_UP, STARTING), ("b", 3, {}, LIVE)]),
        ("abc", [("a", 2.0, CAUGHT_UP, STARTING), ("c", 3.0, CAUGHT_UP, LIVE)]),
        ("a", [("b", 2.0, LATE, LIVE), ("a", 2.0, LATE, STARTING)]),
        ("ab", [("a", 20.0, CAUGHT_UP, SILENT), ("b", 20.0, LATE, STARTING), ("b", 21, {}, LIVE)]),
        ("ab", [("a", 9, {}, LIVE), ("b", 12.0, {"silent_s": 11.5}, SILENT)]),
        ("ab", [("a", 9, {}, LIVE), ("b", 13.0, {"silent_s": 0.5}, LIVE)]),
    ],
    ids=["behind", "new split", "removed split", "after a stall", "silent source", "live source"],
)
def test_every_split_has_to_be_live(
    live: FeedHealth, splits: str, steps: list[tuple[str, float, Piece, FeedState]]
) -> None:
    """A feed is live while all its splits are caught up, and heard of by their source in time."""
    live.on_splits(splits, 1.5)

    assert [read(live, split_id, now, piece) for split_id, now, piece, _ in steps] == [
        state for *_, state in steps
    ]


@pytest.mark.parametrize(("now", "state"), [(10.9, LIVE), (11.0, SILENT)])
def test_one_silent_split_stalls_the_feed(live: FeedHealth, now: float, state: FeedState) -> None:
    """A split without a sign of life for 10 s may have changes that were not reported."""
    read(live, "b", 5.0)

    assert live.state(now) is state
    assert live.next_deadline(now) == (11.0 if state is LIVE else None)


@pytest.mark.parametrize(
    ("ran_again_at", "requested_s", "states"),
    [
        (1.5, 5.0, [LIVE, LIVE, LIVE]),  # 0.5 s: no pause
        (4.0, 3.1, [SILENT, SILENT, SILENT]),  # responses from before the pause
        (4.0, 0.0, [SILENT, SILENT, LIVE]),
    ],
)
def test_sources_prove_themselves_after_a_pause(
    live: FeedHealth, ran_again_at: float, requested_s: float, states: list[FeedState]
) -> None:
    """After a pause of 0.6 s, the feed is live once all sources answer later requests."""
    assert not live.on_run(1.0)

    has_paused = live.on_run(ran_again_at)

    assert has_paused == (SILENT in states)
    answer: Piece = {"requested_s": requested_s}
    found = [read(live, split_id, ran_again_at + 1.0, answer) for split_id in "ab"]
    assert [live.state(ran_again_at) if not has_paused else SILENT, *found] == states
    assert not live.on_run(ran_again_at + 0.5)


def test_heartbeats_are_required() -> None:
    """With `max_staleness` the source's own clock counts, over all splits, from the start."""
    health = FeedHealth(FeedSettings(max_staleness_s=30.0))
    health.on_splits(["a", "b"], 0.0)

    assert read(health, "a", 0.0) is STARTING
    assert read(health, "b", 0.0) is SILENT  # the source has given no time yet
    assert read(health, "b", 1.0, {"source_age_s": 25.0}) is LIVE
    assert health.next_deadline(1.0) == 6.0
    assert read(health, "b", 6.0, {"source_age_s": 35.0}) is SILENT


@pytest.mark.parametrize(("max_staleness_s", "until"), [(None, 2.0), (30.0, -4.0)])
def test_feed_is_complete_until_a_time(max_staleness_s: float | None, until: float) -> None:
    """Changes are reported up to the oldest read of a split, and up to the source's time."""
    health = FeedHealth(FeedSettings(max_staleness_s=max_staleness_s))
    health.on_splits(["a", "b"], 0.0)
    read(health, "a", 2.0, {"source_age_s": 6.0})
    read(health, "b", 5.0)

    assert health.reported_until() == until


@pytest.mark.parametrize(
    ("cache", "reload", "feed", "limit_s"),
    [
        (CacheSettings(ttl_s=60.0), None, None, 60.0),
        (CacheSettings(ttl_s=60.0, stale_while_revalidate_s=5.0), None, None, 65.0),
        (STALE, None, None, 69.0),
        (STALE, None, FeedSettings(max_silence_s=11.0), 11.0),
        (FULL, None, FeedSettings(11.0, max_staleness_s=30.0), 30.0),
        (FULL, ReloadSettings(every_s=3600.0), None, 3600.0),
        (FULL, ReloadSettings(at_s=0.0), None, 86_400.0),
        (FULL, None, None, None),
        (CacheSettings(mode=CacheMode.NONE), None, FeedSettings(), None),
    ],
)
def test_settings_bound_the_staleness(
    cache: CacheSettings,
    reload: ReloadSettings | None,
    feed: FeedSettings | None,
    limit_s: float | None,
) -> None:
    """Rows lag by the expiry and its windows, by the silence of the feed, or between two loads."""
    full = FullSettings(reload=reload or ReloadSettings())
    settings = DimensionSettings("planes", cache=cache, full=full, feed=feed or FeedSettings())

    assert staleness_limit_s(settings, is_followed=feed is not None) == limit_s
