"""How far rows may lag their table, by the settings that say so."""

import math

import pytest

from lookup_core.freshness.feed_health import served_for_s, staleness_limit_s
from lookup_core.settings import (
    CacheMode,
    CacheSettings,
    DimensionSettings,
    FeedSettings,
    FullSettings,
    ReloadSettings,
)


def full(reload: ReloadSettings) -> DimensionSettings:
    """A dimension that is held whole."""
    cache = CacheSettings(mode=CacheMode.FULL)
    return DimensionSettings("planes", cache=cache, full=FullSettings(reload=reload))


def cached(*, revalidate_s: float, if_error_s: float) -> DimensionSettings:
    """A dimension whose rows expire, and may be served stale for so long."""
    cache = CacheSettings(
        ttl_s=60.0, stale_while_revalidate_s=revalidate_s, stale_if_error_s=if_error_s
    )
    return DimensionSettings("planes", cache=cache)


@pytest.mark.parametrize(
    ("revalidate_s", "if_error_s", "limit_s"),
    [(0.0, 0.0, 60.0), (5.0, 0.0, 65.0), (5.0, 9.0, 69.0)],
)
def test_rows_that_expire_are_bounded_by_it(
    revalidate_s: float, if_error_s: float, limit_s: float
) -> None:
    """By their time to live, and by the longer of the windows in which they may be stale."""
    settings = cached(revalidate_s=revalidate_s, if_error_s=if_error_s)

    assert staleness_limit_s(settings, is_followed=False) == limit_s


@pytest.mark.parametrize(
    ("feed", "limit_s"),
    [(FeedSettings(max_silence_s=10.0), 10.0), (FeedSettings(10.0, max_staleness_s=30.0), 30.0)],
)
def test_feed_bounds_what_it_follows(feed: FeedSettings, limit_s: float) -> None:
    """By how long it may be silent, or by how old its latest word may be, if that is known."""
    assert staleness_limit_s(DimensionSettings("planes", feed=feed), is_followed=True) == limit_s


@pytest.mark.parametrize(
    ("reload", "limit_s"),
    [
        (ReloadSettings(every_s=3600.0), 3600.0),
        (ReloadSettings(at_s=0.0), 86_400.0),
        (ReloadSettings(), None),
    ],
)
def test_loads_bound_a_whole_table(reload: ReloadSettings, limit_s: float | None) -> None:
    """By the time from one to the next; a table that is loaded once has no bound."""
    assert staleness_limit_s(full(reload), is_followed=False) == limit_s


def test_whole_table_does_not_expire() -> None:
    """Its rows answer however old they are; others end with their time, and what follows it."""
    settings = cached(revalidate_s=5.0, if_error_s=9.0)

    assert served_for_s(full(ReloadSettings()).cache) == math.inf
    assert served_for_s(settings.cache) == 69.0


def test_nothing_held_has_no_bound() -> None:
    """Without a cache nothing lags."""
    settings = DimensionSettings("planes", cache=CacheSettings(mode=CacheMode.NONE))

    assert staleness_limit_s(settings, is_followed=True) is None
