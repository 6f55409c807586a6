"""Prometheus collector of totals and levels: reads all statistics at each scrape."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family

from lookup_core.answer import Outcome
from lookup_core.freshness.feed_health import FeedState
from lookup_core.operator.watermark_valve import NO_WATERMARK_MS
from lookup_core.protocol.server_channel import ChannelStatistics
from lookup_core.sources.splits import SplitProgress, SplitState
from lookup_core.statistics import (
    DimensionStatistics,
    EvictionReason,
    FeedStatistics,
    InvalidationOrigin,
    LoadResult,
    LoadStatistics,
    RefreshStatistics,
)
from service.observability import metrics
from service.observability.metrics import (
    ChannelState,
    CreditKind,
    Metric,
    RenewalResult,
    SourceKind,
)

Samples: TypeAlias = Iterable[tuple[tuple[str, ...], float]]  # (label values, value)
_Dimensions: TypeAlias = Mapping[str, DimensionStatistics]
_Refreshes: TypeAlias = Mapping[str, RefreshStatistics]


class MemoryFigures(Protocol):
    """The last reading of the memory guard."""

    @property
    def resident_bytes(self) -> int:
        """Resident memory of the process."""
        ...

    @property
    def used_share(self) -> float:
        """Share of the limit."""
        ...

    @property
    def level(self) -> int:
        """Pressure level, 0 to 3."""
        ...


class HeldCertificate(Protocol):
    """The certificate of `listen.tls`."""

    taken_total: int
    refused_total: int

    @property
    def expires_s(self) -> float:
        """Expiry, seconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)  # hashed by the registry
class Collector:
    """Families of all metrics that are totals or levels."""

    dimensions: Callable[[], _Dimensions]
    refreshes: Callable[[], _Refreshes]
    channels: Callable[[], Sequence[ChannelStatistics]]
    watermarks_ms: Callable[[], Mapping[str, int]]  # {dimension: event time of its streams}
    undescribed: Callable[[], Container[str]]  # dimensions that refuse lookups
    uses_index: Callable[[], Mapping[str, bool | None]]  # None: not known yet
    lag_s: Callable[[], float]
    memory: Callable[[], MemoryFigures]
    version: str
    certificate: HeldCertificate | None  # None: no samples; a zero would look expired

    def collect(self) -> Iterator[Family]:
        """One snapshot; called in the event loop's thread, at scrape time."""
        dimensions = self.dimensions()
        yield from _dimension_families(dimensions)
        yield from _refresh_families(self.refreshes())
        yield from _channel_families(self.channels(), sorted(dimensions))
        watermarks_s = {name: each / 1000 for name, each in self.watermarks_ms().items()}
        yield sampled_family(metrics.STREAM_WATERMARK_SECONDS, _known(watermarks_s))
        undescribed = self.undescribed()
        is_available = {name: name not in undescribed for name in dimensions}
        yield sampled_family(metrics.DIMENSION_AVAILABLE, _known(is_available))
        yield sampled_family(metrics.LOOKUP_USES_INDEX, _known(self.uses_index()))
        yield sampled_family(metrics.EVENT_LOOP_LAG_SECONDS, [((), self.lag_s())])
        memory = self.memory()
        yield sampled_family(metrics.MEMORY_RESIDENT_BYTES, [((), memory.resident_bytes)])
        yield sampled_family(metrics.MEMORY_USED_RATIO, [((), memory.used_share)])
        yield sampled_family(metrics.MEMORY_PRESSURE_LEVEL, [((), memory.level)])
        yield sampled_family(metrics.BUILD_INFO, [((self.version,), 1)])
        yield from _certificate_families(self.certificate)


def sampled_family(metric: Metric, samples: Samples) -> Family:
    """A counter if the metric's name ends with `_total`, else a gauge."""
    is_total = metric.name.endswith("_total")
    kind = CounterMetricFamily if is_total else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def _known(values: Mapping[str, float | None]) -> Samples:
    return [((name,), value) for name, value in values.items() if value is not None]


_OF_DIMENSIONS: tuple[tuple[Metric, Callable[[DimensionStatistics], float]], ...] = (
    (metrics.COALESCED_KEYS, lambda statistics: statistics.coalesced_keys),
    (metrics.RETRIES, lambda statistics: statistics.retries),
    (metrics.FENCED_KEYS, lambda statistics: statistics.fenced_keys),
    (metrics.CACHE_ROWS, lambda statistics: statistics.cache.rows),
    (metrics.CACHE_BYTES, lambda statistics: statistics.cache.bytes),
    (metrics.CACHE_MAX_BYTES, lambda statistics: statistics.cache.max_bytes),
    (metrics.IN_FLIGHT_RECORDS, lambda statistics: statistics.waiting_keys),
    (metrics.QUEUED_KEYS, lambda statistics: statistics.queued_keys),
    (metrics.QUERIES_IN_FLIGHT, lambda statistics: statistics.queries_in_flight),
    (metrics.CONCURRENCY_LIMIT, lambda statistics: statistics.concurrency_limit),
    (metrics.BREAKER_STATE, lambda statistics: statistics.breaker_state),
)


def _dimension_families(dimensions: _Dimensions) -> Iterator[Family]:
    for metric, read in _OF_DIMENSIONS:
        yield sampled_family(metric, [((name,), read(each)) for name, each in dimensions.items()])
    yield sampled_family(metrics.LOOKUPS, _outcomes(dimensions))
    yield sampled_family(metrics.CACHE_EVICTIONS, _evictions(dimensions))
    yield sampled_family(metrics.INVALIDATIONS, _invalidations(dimensions))


def _outcomes(dimensions: _Dimensions) -> Samples:
    # All outcomes from the start: a rate over a series that appears late misses its first step.
    for name, each in dimensions.items():
        for outcome in Outcome:
            yield (name, outcome.label), each.outcomes.get(outcome, 0)


def _evictions(dimensions: _Dimensions) -> Samples:
    for name, each in dimensions.items():
        for reason in EvictionReason:
            yield (name, reason.value), each.cache.evictions.get(reason, 0)


def _invalidations(dimensions: _Dimensions) -> Samples:
    for name, each in dimensions.items():
        for origin in InvalidationOrigin:
            yield (name, origin.value), each.invalidations.get(origin, 0)


_OF_REFRESHES: tuple[tuple[Metric, Callable[[RefreshStatistics], float | None]], ...] = (
    (metrics.DIMENSION_STALENESS_SECONDS, lambda refresh: refresh.staleness_s),
    (metrics.DIMENSION_STALENESS_LIMIT_SECONDS, lambda refresh: refresh.staleness_limit_s),
)
_OF_FEEDS: tuple[tuple[Metric, Callable[[FeedStatistics], float | None]], ...] = (
    (metrics.DIMENSION_WATERMARK_SECONDS, lambda feed: _seconds(feed.watermark_ms)),
    (metrics.DIMENSION_FEED_LIVE, lambda feed: feed.state is FeedState.LIVE),
    (metrics.DIMENSION_FEED_BACKLOG, lambda feed: sum(map(_unread, feed.splits))),
)
_OF_LOADS: tuple[tuple[Metric, Callable[[LoadStatistics], float | None]], ...] = (
    (metrics.DIMENSION_WHOLE, lambda load: load.is_whole),
    (metrics.DIMENSION_LOADING, lambda load: load.is_loading),
    (metrics.DIMENSION_LOAD_ROWS, lambda load: load.rows),
    (metrics.DIMENSION_LOAD_SECONDS, lambda load: load.last_seconds),
)


def _refresh_families(refreshes: _Refreshes) -> Iterator[Family]:
    feeds = {name: each.feed for name, each in refreshes.items() if each.feed is not None}
    loads = {name: each.load for name, each in refreshes.items() if each.load is not None}
    for metric, of_refresh in _OF_REFRESHES:
        values = {name: of_refresh(each) for name, each in refreshes.items()}
        yield sampled_family(metric, _known(values))
    for metric, of_feed in _OF_FEEDS:
        yield sampled_family(metric, _known({name: of_feed(each) for name, each in feeds.items()}))
    yield sampled_family(metrics.DIMENSION_FEED_UNUSED_MESSAGES, _unused(feeds))
    for metric, of_load in _OF_LOADS:
        yield sampled_family(metric, _known({name: of_load(each) for name, each in loads.items()}))
    yield sampled_family(metrics.DIMENSION_LOADS, _loads(loads))
    yield sampled_family(metrics.DIMENSION_SPLITS, _split_states(refreshes))
    yield sampled_family(metrics.DIMENSION_SPLIT_FAILURES, _failures(feeds, loads))


def _seconds(watermark_ms: int) -> float | None:
    return None if watermark_ms == NO_WATERMARK_MS else watermark_ms / 1000


def _unread(split: SplitProgress) -> int:
    if split.total is None or split.position is None:
        return 0
    return max(0, split.total - split.position)


def _unused(feeds: Mapping[str, FeedStatistics]) -> Samples:
    for name, each in feeds.items():
        for reason, count in each.unused_messages.items():
            yield (name, reason.value), count


def _loads(loads: Mapping[str, LoadStatistics]) -> Samples:
    for name, each in loads.items():
        for result in LoadResult:
            yield (name, result.value), each.counts.get(result, 0)


def _split_states(refreshes: _Refreshes) -> Samples:
    for name, each in refreshes.items():
        parts = [part for part in (each.feed, each.load) if part is not None]
        states = [split.state for part in parts for split in part.splits]
        for state in SplitState if parts else ():
            yield (name, state.value), states.count(state)


def _failures(feeds: Mapping[str, FeedStatistics], loads: Mapping[str, LoadStatistics]) -> Samples:
    # Two series, because each restarts at zero: Prometheus would misread a partial reset of a sum.
    for kind, sources in ((SourceKind.FEED, feeds), (SourceKind.LOAD, loads)):
        for name, each in sources.items():
            yield (name, kind.value), sum(split.failures_total for split in each.splits)


def _channel_families(
    channels: Sequence[ChannelStatistics], dimensions: Sequence[str]
) -> Iterator[Family]:
    by_name = {name: [each for each in channels if each.dimension == name] for name in dimensions}
    backlogs = {name: sum(each.backlog_records for each in own) for name, own in by_name.items()}
    yield sampled_family(metrics.BACKLOG_RECORDS, _known(backlogs))
    yield sampled_family(metrics.CREDIT_RECORDS, _credit(by_name))
    yield sampled_family(metrics.CHANNELS, _channel_states(by_name))


def _credit(by_name: Mapping[str, Sequence[ChannelStatistics]]) -> Samples:
    for name, own in by_name.items():
        yield (name, CreditKind.EXCLUSIVE.value), sum(each.exclusive_records for each in own)
        yield (name, CreditKind.FLOATING.value), sum(each.floating_records for each in own)


def _channel_states(by_name: Mapping[str, Sequence[ChannelStatistics]]) -> Samples:
    for name, own in by_name.items():
        idle = sum(each.is_idle for each in own)
        yield (name, ChannelState.ACTIVE.value), len(own) - idle
        yield (name, ChannelState.IDLE.value), idle


def _certificate_families(certificate: HeldCertificate | None) -> Iterator[Family]:
    expiry: Samples = []
    renewals: Samples = []
    if certificate is not None:
        expiry = [((), certificate.expires_s)]
        renewals = [
            ((RenewalResult.TAKEN.value,), certificate.taken_total),
            ((RenewalResult.REFUSED.value,), certificate.refused_total),
        ]
    yield sampled_family(metrics.TLS_CERTIFICATE_EXPIRY_SECONDS, expiry)
    yield sampled_family(metrics.TLS_CERTIFICATE_RENEWALS, renewals)
