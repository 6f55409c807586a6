"""How dimensions are loaded and followed, as families of samples.

A dimension without a feed, or not held whole, has no samples of it: zeros would be taken for facts.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from prometheus_client.metrics_core import Metric as Family

from lookup_core.freshness.feed_health import FeedState
from lookup_core.refresh_statistics import (
    FeedStatistics,
    LoadResult,
    LoadStatistics,
    RefreshStatistics,
)
from lookup_core.sources.split_progress import SplitProgress, SplitState
from lookup_core.watermark_valve import NO_WATERMARK_MS
from service.observability import metrics
from service.observability.metrics import Metric, SourceKind
from service.observability.sampled_family import Samples, sampled_family

_Refreshes: TypeAlias = Mapping[str, RefreshStatistics]  # {dimension: its}

_OF_FEEDS: tuple[tuple[Metric, Callable[[FeedStatistics], float | None]], ...] = (
    (metrics.DIMENSION_WATERMARK_SECONDS, lambda feed: _seconds(feed.watermark_ms)),
    (metrics.DIMENSION_FEED_LIVE, lambda feed: feed.state is FeedState.LIVE),
    (metrics.DIMENSION_FEED_BACKLOG, lambda feed: sum(map(_untaken, feed.splits))),
)
_OF_LOADS: tuple[tuple[Metric, Callable[[LoadStatistics], float | None]], ...] = (
    (metrics.DIMENSION_WHOLE, lambda load: load.is_whole),
    (metrics.DIMENSION_LOADING, lambda load: load.is_loading),
    (metrics.DIMENSION_LOAD_ROWS, lambda load: load.rows),
    (metrics.DIMENSION_LOAD_SECONDS, lambda load: load.last_seconds),
)


def refresh_families(refreshes: _Refreshes) -> Iterator[Family]:
    """All of them."""
    feeds = {name: each.feed for name, each in refreshes.items() if each.feed is not None}
    loads = {name: each.load for name, each in refreshes.items() if each.load is not None}
    staleness = _known({name: each.staleness_s for name, each in refreshes.items()})
    yield sampled_family(metrics.DIMENSION_STALENESS_SECONDS, staleness)
    limits = _known({name: each.staleness_limit_s for name, each in refreshes.items()})
    yield sampled_family(metrics.DIMENSION_STALENESS_LIMIT_SECONDS, limits)
    for metric, of_feed in _OF_FEEDS:
        yield sampled_family(metric, _known({name: of_feed(each) for name, each in feeds.items()}))
    yield sampled_family(metrics.DIMENSION_FEED_UNUSED_MESSAGES, _unused(feeds))
    for metric, of_load in _OF_LOADS:
        yield sampled_family(metric, _known({name: of_load(each) for name, each in loads.items()}))
    yield sampled_family(metrics.DIMENSION_LOADS, _loads(loads))
    yield sampled_family(metrics.DIMENSION_SPLITS, _states(refreshes))
    yield sampled_family(metrics.DIMENSION_SPLIT_FAILURES, _failures(feeds, loads))


def _known(values: Mapping[str, float | None]) -> Samples:
    return [((name,), value) for name, value in values.items() if value is not None]


def _seconds(watermark_ms: int) -> float | None:
    return None if watermark_ms == NO_WATERMARK_MS else watermark_ms / 1000


def _untaken(split: SplitProgress) -> int:
    if split.total is None or split.position is None:
        return 0
    return max(0, split.total - split.position)


def _unused(feeds: Mapping[str, FeedStatistics]) -> Samples:
    for name, each in feeds.items():
        for why, count in each.unused_messages.items():
            yield (name, why.value), count


def _loads(loads: Mapping[str, LoadStatistics]) -> Samples:
    for name, each in loads.items():
        for result in LoadResult:
            yield (name, result.value), each.counts.get(result, 0)


def _states(refreshes: _Refreshes) -> Samples:
    for name, each in refreshes.items():
        parts = [part for part in (each.feed, each.load) if part is not None]
        states = [split.state for part in parts for split in part.splits]
        for state in SplitState if parts else ():
            yield (name, state.value), states.count(state)


def _failures(feeds: Mapping[str, FeedStatistics], loads: Mapping[str, LoadStatistics]) -> Samples:
    # Apart, as each begins anew at zero: their sum would only go back by a part of it.
    for kind, sources in ((SourceKind.FEED, feeds), (SourceKind.LOAD, loads)):
        for name, each in sources.items():
            yield (name, kind.value), sum(split.failures_total for split in each.splits)
