"""How a dimension is loaded and followed, as the values of its JSON document."""

from lookup_core.freshness.feed_health import FeedState
from lookup_core.sources.splits import SplitProgress, SplitState
from lookup_core.statistics import FeedStatistics, LoadStatistics, RefreshStatistics, UnusedMessage
from service.http.routes.dimensions import freshness

PARTITION = SplitProgress(
    "flights-0",
    SplitState.WAITING,
    position=7,
    total=10,
    failures_total=2,
    last_error="connection_lost: the broker is away",
    watermark_ms=5_250,
    is_paused=True,
)
TOLD_PARTITION = {
    "id": "flights-0",
    "state": "waiting",
    "position": 7,
    "total": 10,
    "is_caught_up": False,
    "failures": 2,
    "last_error": "connection_lost: the broker is away",
    "watermark_ms": 5_250,
    "is_idle": False,
    "is_paused": True,
}


def test_absent_sources_are_null() -> None:
    """A dimension that is read through has its staleness only."""
    told = freshness(RefreshStatistics(1.5))

    assert told == {"staleness_s": 1.5, "feed": None, "load": None}


def test_feed_tells_each_split() -> None:
    """State, merged watermark, and all that is known of each part."""
    feed = FeedStatistics(
        *(FeedState.LIVE, 5_000, (PARTITION,), "there is no such topic"),
        {UnusedMessage.IGNORED: 4, UnusedMessage.UNDECODABLE: 1},
    )

    told = freshness(RefreshStatistics(feed=feed))["feed"]

    assert told == {
        "state": "live",
        "watermark_ms": 5_000,
        "last_error": "there is no such topic",
        "unused_messages": {"ignored": 4, "undecodable": 1},
        "splits": [TOLD_PARTITION],
    }


def test_absent_watermarks_are_null() -> None:
    """Before anything told the time there is no watermark, of the feed or of a split."""
    split = SplitProgress("flights-0", SplitState.UNASSIGNED)

    told = freshness(RefreshStatistics(feed=FeedStatistics(FeedState.STARTING, splits=(split,))))

    assert (told["feed"]["watermark_ms"], told["feed"]["splits"][0]["watermark_ms"]) == (None, None)


def test_load_tells_how_far_it_is() -> None:
    """What was read of how much, how former loads ended, and each part."""
    load = LoadStatistics(
        is_loading=True,
        rows=400,
        held_rows=300,
        expected_rows=1_000,
        last_error="full",
        splits=(PARTITION,),
    )

    assert freshness(RefreshStatistics(load=load))["load"] == {
        "is_whole": False,
        "is_loading": True,
        "rows": 400,
        "held_rows": 300,
        "expected_rows": 1_000,
        "last_seconds": None,
        "last_error": "full",
        "counts": {"ok": 0, "error": 0, "outdated": 0},
        "splits": [TOLD_PARTITION],
    }
