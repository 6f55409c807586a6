"""Prometheus collectors for dimensions, channels and certificates, read at scrape time."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from prometheus_client import registry
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family

from lookup_core.answer import Outcome
from lookup_core.freshness.feed_health import FeedState
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
from lookup_core.watermark_valve import NO_WATERMARK_MS
from service.observability import metrics
from service.observability.metrics import (
    ChannelState,
    CreditKind,
    Metric,
    RenewalResult,
    SourceKind,
)

Samples: TypeAlias = Iterable[tuple[tuple[str, ...], float]]  # (label values, value)


def sampled_family(metric: Metric, samples: Samples) -> Family:
    """A total, if that is what the metric's name says; else a level."""
    is_total = metric.name.endswith("_total")
    kind = CounterMetricFamily if is_total else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


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


class HeldCertificate(Protocol):
    """What is told of a certificate."""

    taken_total: int
    refused_total: int

    @property
    def expires_s(self) -> float:
        """Since the epoch."""


class CertificateCollector(registry.Collector):
    """The families of a certificate; without samples where there is none."""

    def __init__(self, certificate: HeldCertificate | None) -> None:
        self._certificate = certificate

    def collect(self) -> Iterator[Family]:
        """One family for each metric."""
        expiry: Samples = []
        renewals: Samples = []
        if self._certificate is not None:
            expiry = [((), self._certificate.expires_s)]
            renewals = [
                ((RenewalResult.TAKEN.value,), self._certificate.taken_total),
                ((RenewalResult.REFUSED.value,), self._certificate.refused_total),
            ]
        yield sampled_family(metrics.TLS_CERTIFICATE_EXPIRY_SECONDS, expiry)
        yield sampled_family(metrics.TLS_CERTIFICATE_RENEWALS, renewals)


_Dimensions = Mapping[str, DimensionStatistics]
_Reader = Callable[[DimensionStatistics], float]

_COUNTERS: tuple[tuple[Metric, _Reader], ...] = (
    (metrics.COALESCED_KEYS, lambda statistics: statistics.coalesced_keys),
    (metrics.RETRIES, lambda statistics: statistics.retries),
    (metrics.FENCED_KEYS, lambda statistics: statistics.fenced_keys),
)
_GAUGES: tuple[tuple[Metric, _Reader], ...] = (
    (metrics.CACHE_ROWS, lambda statistics: statistics.cache.rows),
    (metrics.CACHE_BYTES, lambda statistics: statistics.cache.bytes),
    (metrics.CACHE_MAX_BYTES, lambda statistics: statistics.cache.max_bytes),
    (metrics.IN_FLIGHT_RECORDS, lambda statistics: statistics.waiting_keys),
    (metrics.QUEUED_KEYS, lambda statistics: statistics.queued_keys),
    (metrics.QUERIES_IN_FLIGHT, lambda statistics: statistics.queries_in_flight),
    (metrics.CONCURRENCY_LIMIT, lambda statistics: statistics.concurrency_limit),
    (metrics.BREAKER_STATE, lambda statistics: statistics.breaker_state),
)


class MemoryFigures(Protocol):
    """What the guard of the memory has seen and done."""

    @property
    def resident_bytes(self) -> int:
        """Of the process."""
        ...

    @property
    def used_share(self) -> float:
        """Of what there may be."""
        ...

    @property
    def level(self) -> int:
        """What is given up."""
        ...


@dataclass(frozen=True, slots=True)
class Collector:
    """Families of all metrics that are totals or levels."""

    dimensions: Callable[[], _Dimensions]
    refreshes: Callable[[], Mapping[str, RefreshStatistics]]
    channels: Callable[[], Sequence[ChannelStatistics]]
    watermarks_ms: Callable[[], Mapping[str, int]]  # {dimension: event time of its streams}
    undescribed: Callable[[], Container[str]]  # dimensions that take no lookups
    uses_index: Callable[[], Mapping[str, bool | None]]  # None: not known yet
    lag_s: Callable[[], float]
    memory: Callable[[], MemoryFigures]
    version: str

    def collect(self) -> Iterator[Family]:
        """One snapshot of everything; called in the event loop's thread, at scrape time."""
        dimensions = self.dimensions()
        yield from _dimension_families(dimensions)
        yield from refresh_families(self.refreshes())
        yield from _channel_families(self.channels(), sorted(dimensions))
        yield sampled_family(
            metrics.STREAM_WATERMARK_SECONDS, _watermark_seconds(self.watermarks_ms())
        )
        yield sampled_family(
            metrics.DIMENSION_AVAILABLE, _availability(dimensions, self.undescribed())
        )
        yield sampled_family(metrics.LOOKUP_USES_INDEX, _known_flags(self.uses_index()))
        yield sampled_family(metrics.EVENT_LOOP_LAG_SECONDS, [((), self.lag_s())])
        yield from _memory_families(self.memory())
        yield sampled_family(metrics.BUILD_INFO, [((self.version,), 1)])


def _memory_families(memory: MemoryFigures) -> Iterator[Family]:
    yield sampled_family(metrics.MEMORY_RESIDENT_BYTES, [((), memory.resident_bytes)])
    yield sampled_family(metrics.MEMORY_USED_RATIO, [((), memory.used_share)])
    yield sampled_family(metrics.MEMORY_PRESSURE_LEVEL, [((), memory.level)])


def _dimension_families(dimensions: _Dimensions) -> Iterator[Family]:
    for metric, read in _COUNTERS:
        yield sampled_family(metric, [((name,), read(each)) for name, each in dimensions.items()])
    for metric, read in _GAUGES:
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


def _channel_families(
    channels: Sequence[ChannelStatistics], dimensions: Sequence[str]
) -> Iterator[Family]:
    by_name = {name: [each for each in channels if each.dimension == name] for name in dimensions}
    yield sampled_family(
        metrics.BACKLOG_RECORDS,
        [((name,), sum(each.backlog_records for each in own)) for name, own in by_name.items()],
    )
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


def _availability(dimensions: Iterable[str], undescribed: Container[str]) -> Samples:
    return [((name,), name not in undescribed) for name in dimensions]


def _known_flags(are_so: Mapping[str, bool | None]) -> Samples:
    return [((name,), is_so) for name, is_so in are_so.items() if is_so is not None]


def _watermark_seconds(watermarks_ms: Mapping[str, int]) -> Samples:
    for name, watermark_ms in watermarks_ms.items():
        yield (name,), watermark_ms / 1000
