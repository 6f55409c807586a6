"""When a feed is believed: caught up, heard of lately, and not behind its source."""

import math

import pytest

from lookup_core.freshness.feed_health import FeedHealth, FeedState


def heard(
    health: FeedHealth,
    split_id: str = "a",
    *,
    now: float,
    is_caught_up: bool = True,
    silent_s: float = 0.0,
    source_age_s: float | None = None,
) -> FeedState:
    """A piece comes; the state after it."""
    health.on_piece(
        split_id,
        is_caught_up=is_caught_up,
        silent_s=silent_s,
        source_age_s=source_age_s,
        now=now,
    )
    return health.state(now)


@pytest.fixture
def health() -> FeedHealth:
    """A feed of two splits, heard of every 10 s at least."""
    health = FeedHealth()
    health.on_splits(["a", "b"], 0.0)
    return health


def test_feed_without_splits_is_starting() -> None:
    """Before its splits are known nothing of it can be believed."""
    health = FeedHealth()

    assert (health.state(0.0), health.next_deadline(0.0)) == (FeedState.STARTING, None)


def test_every_split_has_to_catch_up(health: FeedHealth) -> None:
    """It is live as soon as the last split was read to where it ended, and not before."""
    assert heard(health, "a", now=1.0) is FeedState.STARTING
    assert heard(health, "b", now=1.0, is_caught_up=False) is FeedState.STARTING
    assert heard(health, "b", now=2.0) is FeedState.LIVE
    assert health.next_deadline(2.0) == 11.0  # a was heard at 1


def test_new_split_has_to_catch_up(health: FeedHealth) -> None:
    """What came to a partition that was added just now has not been read; others keep theirs."""
    for split_id in ("a", "b"):
        heard(health, split_id, now=1.0)
    health.on_splits(["a", "b", "c"], 2.0)

    assert health.state(2.0) is FeedState.STARTING
    assert heard(health, "c", now=3.0) is FeedState.LIVE


def test_split_that_is_gone_is_not_waited_for(health: FeedHealth) -> None:
    """What a split has to say that is no longer one changes nothing."""
    heard(health, "a", now=1.0)
    health.on_splits(["a"], 2.0)

    assert heard(health, "b", now=2.0, is_caught_up=False) is FeedState.LIVE


@pytest.mark.parametrize(("now", "state"), [(10.9, FeedState.LIVE), (11.0, FeedState.SILENT)])
def test_silence_of_one_split_is_silence(health: FeedHealth, now: float, state: FeedState) -> None:
    """A split without a sign of life for 10 s may have changes that nobody hears of."""
    heard(health, "a", now=1.0)
    heard(health, "b", now=5.0)

    assert health.state(now) is state
    assert health.next_deadline(now) == (11.0 if state is FeedState.LIVE else None)


def test_silence_is_the_sources_not_ours(health: FeedHealth) -> None:
    """A read that brings nothing is no sign of life by itself: the source says when it spoke."""
    heard(health, "a", now=1.0)
    heard(health, "b", now=1.0)
    heard(health, "a", now=9.0)

    assert heard(health, "b", now=12.0, silent_s=11.5) is FeedState.SILENT
    assert heard(health, "b", now=13.0, silent_s=0.5) is FeedState.LIVE


def test_silent_feed_comes_back_caught_up(health: FeedHealth) -> None:
    """After a silence it is believed when what was missed is read."""
    heard(health, "a", now=1.0)
    heard(health, "b", now=1.0)
    heard(health, "a", now=20.0)

    assert heard(health, "b", now=20.0, is_caught_up=False) is FeedState.STARTING
    assert heard(health, "b", now=21.0) is FeedState.LIVE


def test_promised_heartbeats_are_insisted_on() -> None:
    """Where the source speaks now and then, its own clock counts, over all splits, and at once."""
    health = FeedHealth(max_staleness_s=30.0)
    health.on_splits(["a", "b"], 0.0)

    assert heard(health, "a", now=0.0) is FeedState.STARTING
    assert heard(health, "b", now=0.0) is FeedState.SILENT  # it has not said when it is
    assert heard(health, "b", now=1.0, source_age_s=25.0) is FeedState.LIVE
    assert health.next_deadline(1.0) == 6.0
    assert heard(health, "b", now=6.0, source_age_s=35.0) is FeedState.SILENT


@pytest.mark.parametrize(("max_staleness_s", "told_until"), [(None, 2.0), (30.0, -4.0)])
def test_feed_tells_until_when_it_is_whole(
    max_staleness_s: float | None, told_until: float
) -> None:
    """As long as the least of its splits, and its source, if that is to tell its time."""
    health = FeedHealth(max_staleness_s=max_staleness_s)
    assert health.told_until() == -math.inf
    health.on_splits(["a", "b"], 0.0)
    heard(health, "a", now=2.0, source_age_s=6.0)
    heard(health, "b", now=5.0)

    assert health.told_until() == told_until
