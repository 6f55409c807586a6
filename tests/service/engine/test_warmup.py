"""When a dimension counts as started."""

from dataclasses import replace

import pytest

from lookup_core.freshness.feed_health import FeedState
from lookup_core.settings import FullSettings
from lookup_core.statistics import FeedStatistics, LoadStatistics
from service.engine.refresher import Warmup
from tests.service.engine.refreshing import full
from tests.service.engine.running import settings

LOADING = LoadStatistics(is_loading=True, rows=1_500)
CHOSEN = full(FullSettings(warmup_max_wait_s=60.0))


def reason(warmup: Warmup, load: LoadStatistics | None, now: float = 1.0) -> str | None:
    """What is waited for."""
    return warmup.cold_reason(load, None, now)


def test_nothing_is_waited_for_without_a_load() -> None:
    """Rows that come as they are asked for need no start."""
    assert reason(Warmup(settings(), began_at=0.0), None) is None


def test_reason_tells_how_far_it_is() -> None:
    """People see whether waiting is of use."""
    warmup = Warmup(CHOSEN, began_at=0.0)
    failed = LoadStatistics(last_error="customers: may not be read")

    assert [
        reason(warmup, None),
        reason(warmup, LOADING),
        reason(warmup, replace(LOADING, expected_rows=2_000)),
        reason(warmup, replace(LOADING, last_error="garbage")),
        reason(warmup, failed),
    ] == [
        "its load has not begun",
        "loading: 1,500 rows",
        "loading: 1,500 of about 2,000 rows",
        "loading: 1,500 rows; a try failed: garbage",
        "its load failed: customers: may not be read",
    ]


@pytest.mark.parametrize(
    ("feed", "told"),
    [
        (FeedStatistics(FeedState.STARTING), "its load waits for its feed"),
        (FeedStatistics(FeedState.SILENT, last_error="gone"), "its load waits for its feed: gone"),
        (FeedStatistics(FeedState.LIVE), "its load has not begun"),
    ],
)
def test_reason_tells_of_the_feed(feed: FeedStatistics, told: str) -> None:
    """A load does not begin before changes are followed: what is wrong there holds it up."""
    assert Warmup(CHOSEN, began_at=0.0).cold_reason(LoadStatistics(), feed, 1.0) == told


def test_whole_table_has_started_for_good() -> None:
    """A doubt later on is no reason to be started anew."""
    warmup = Warmup(CHOSEN, began_at=0.0)

    assert reason(warmup, LoadStatistics(is_whole=True)) is None
    assert reason(warmup, LOADING) is None


def test_start_does_not_wait_for_ever() -> None:
    """After the longest wait it counts as started, loaded or not."""
    warmup = Warmup(CHOSEN, began_at=100.0)

    assert reason(warmup, LOADING, now=159.9) == "loading: 1,500 rows"
    assert reason(warmup, LOADING, now=160.0) is None
