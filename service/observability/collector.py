"""Prometheus collector of totals and levels: reads all statistics at each scrape."""

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias, TypeVar

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family

from lookup_core.answer import Outcome
from lookup_core.event_time.watermark_valve import NO_WATERMARK_MS
from lookup_core.freshness.feed_health import FeedState
from lookup_core.protocol.server_channel import ChannelStatistics
from lookup_core.sources.splits import SplitProgress, SplitState
from lookup_core.statistics import (
    AuditResult,
    CertificateStatistics,
    DimensionStatistics,
    EvictionReason,
    FeedStatistics,
    InvalidationOrigin,
    LoadResult,
    LoadStatistics,
    MemoryStatistics,
    RefreshStatistics,
    UnusedMessage,
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
Kind = TypeVar("Kind", bound=Enum)
Source = TypeVar("Source")
_Readers: TypeAlias = Sequence[tuple[Metric, Callable[[Source], float | None]]]  # None: no sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Collector:
    """Families of all metrics that are totals or levels."""

    dimensions: Callable[[], _Dimensions]
    refreshes: Callable[[], _Refreshes]
    channels: Callable[[], Sequence[ChannelStatistics]]
    watermarks_ms: Callable[[], Mapping[str, int]]  # {dimension: event time of its streams}
    undescribed: Callable[[], Container[str]]  # dimensions that refuse lookups
    uses_index: Callable[[], Mapping[str, bool | None]]  # None: not known yet
    lag_s: Callable[[], float]
    is_reachable: Callable[[], bool]  # whether clients can connect
    memory: Callable[[], MemoryStatistics]
    version: str
    certificate: (
        Callable[[], CertificateStatistics] | None
    )  # None: no samples; a zero would look expired

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
        yield sampled_family(metrics.LISTENERS_REACHABLE, [((), self.is_reachable())])
        memory = self.memory()
        yield sampled_family(metrics.MEMORY_RESIDENT_BYTES, [((), memory.resident_bytes)])
        yield sampled_family(metrics.MEMORY_USED_RATIO, [((), memory.used_share)])
        yield sampled_family(metrics.MEMORY_PRESSURE_LEVEL, [((), memory.level)])
        yield sampled_family(metrics.BUILD_INFO, [((self.version,), 1)])
        yield from _certificate_families(self.certificate and self.certificate())


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


def _read_families(readers: _Readers[Source], sources: Mapping[str, Source]) -> Iterator[Family]:
    for metric, read in readers:
        yield sampled_family(metric, _known({name: read(each) for name, each in sources.items()}))


_OF_DIMENSIONS: _Readers[DimensionStatistics] = (
    (metrics.COALESCED_KEYS, lambda statistics: statistics.coalesced_keys),
    (metrics.RETRIES, lambda statistics: statistics.retries),
    (metrics.FENCED_KEYS, lambda statistics: statistics.fenced_keys),
    (metrics.CACHE_ROWS, lambda statistics: statistics.cache.rows),
    (metrics.CACHE_BYTES, lambda statistics: statistics.cache.bytes),
    (metrics.CACHE_MAX_BYTES, lambda statistics: statistics.cache.max_bytes),
    (metrics.CACHE_IS_SHARED, lambda statistics: statistics.shared.why_private is None),
    (metrics.SHARED_CACHE_BYTES, lambda statistics: statistics.shared.bytes),
    (metrics.SHARED_LOOKUPS, lambda statistics: statistics.shared.keys),
    (metrics.IN_FLIGHT_RECORDS, lambda statistics: statistics.waiting_keys),
    (metrics.QUEUED_KEYS, lambda statistics: statistics.queued_keys),
    (metrics.QUERIES_IN_FLIGHT, lambda statistics: statistics.queries_in_flight),
    (metrics.CONNECTION_WAIT_SECONDS, lambda statistics: statistics.connection_wait_s),
    (metrics.CONCURRENCY_LIMIT, lambda statistics: statistics.concurrency_limit),
    (metrics.BREAKER_STATE, lambda statistics: statistics.breaker_state),
)


def _dimension_families(dimensions: _Dimensions) -> Iterator[Family]:
    yield from _read_families(_OF_DIMENSIONS, dimensions)
    outcomes = {name: each.outcomes for name, each in dimensions.items()}
    yield sampled_family(metrics.LOOKUPS, _by_kind(outcomes, Outcome))
    evictions = {name: each.cache.evictions for name, each in dimensions.items()}
    yield sampled_family(metrics.CACHE_EVICTIONS, _by_kind(evictions, EvictionReason))
    invalidations = {name: each.invalidations for name, each in dimensions.items()}
    yield sampled_family(metrics.INVALIDATIONS, _by_kind(invalidations, InvalidationOrigin))


def _by_kind(counts: Mapping[str, Mapping[Kind, float]], kinds: Iterable[Kind]) -> Samples:
    # All kinds from the start: a rate over a series that appears late misses its first step.
    kinds = [*kinds]
    for name, own in counts.items():
        for kind in kinds:
            label = kind.label if isinstance(kind, Outcome) else str(kind.value)
            yield (name, label), own.get(kind, 0)


_OF_REFRESHES: _Readers[RefreshStatistics] = (
    (metrics.DIMENSION_STALENESS_SECONDS, lambda refresh: refresh.staleness_s),
    (metrics.DIMENSION_STALENESS_LIMIT_SECONDS, lambda refresh: refresh.staleness_limit_s),
)
_OF_FEEDS: _Readers[FeedStatistics] = (
    (metrics.DIMENSION_WATERMARK_SECONDS, lambda feed: _seconds(feed.watermark_ms)),
    (metrics.DIMENSION_FEED_LIVE, lambda feed: feed.state is FeedState.LIVE),
    (metrics.DIMENSION_FEED_INCOMPLETE, lambda feed: feed.state is FeedState.INCOMPLETE),
    (metrics.DIMENSION_FEED_BACKLOG, lambda feed: sum(map(_unread, feed.splits))),
)
_OF_LOADS: _Readers[LoadStatistics] = (
    (metrics.DIMENSION_WHOLE, lambda load: load.is_whole),
    (metrics.DIMENSION_LOADING, lambda load: load.is_loading),
    (metrics.DIMENSION_LOAD_ROWS, lambda load: load.rows),
    (metrics.DIMENSION_LOAD_SECONDS, lambda load: load.last_seconds),
)


def _refresh_families(refreshes: _Refreshes) -> Iterator[Family]:
    feeds = {name: each.feed for name, each in refreshes.items() if each.feed is not None}
    loads = {name: each.load for name, each in refreshes.items() if each.load is not None}
    yield from _read_families(_OF_REFRESHES, refreshes)
    yield from _read_families(_OF_FEEDS, feeds)
    unused = {name: each.unused_messages for name, each in feeds.items()}
    messages = _by_kind(unused, UnusedMessage)
    yield sampled_family(metrics.DIMENSION_FEED_UNUSED_MESSAGES, messages)
    audited = {name: each.audited_keys for name, each in feeds.items()}
    yield sampled_family(metrics.DIMENSION_AUDITED_KEYS, _by_kind(audited, AuditResult))
    yield from _read_families(_OF_LOADS, loads)
    results = {name: each.counts for name, each in loads.items()}
    yield sampled_family(metrics.DIMENSION_LOADS, _by_kind(results, LoadResult))
    states: dict[str, Counter[SplitState]] = defaultdict(Counter)
    # Two series, because each restarts at zero: Prometheus would misread a partial reset of a sum.
    failures: list[tuple[tuple[str, str], int]] = []
    for kind, own in ((SourceKind.FEED, feeds), (SourceKind.LOAD, loads)):
        for name, each in own.items():
            states[name].update(split.state for split in each.splits)
            failures.append(((name, kind.value), sum(one.failures_total for one in each.splits)))
    yield sampled_family(metrics.DIMENSION_SPLITS, _by_kind(states, SplitState))
    yield sampled_family(metrics.DIMENSION_SPLIT_FAILURES, failures)


def _seconds(watermark_ms: int) -> float | None:
    return None if watermark_ms == NO_WATERMARK_MS else watermark_ms / 1000


def _unread(split: SplitProgress) -> int:
    if split.total is None or split.position is None:
        return 0
    return max(0, split.total - split.position)


def _channel_families(
    channels: Sequence[ChannelStatistics], dimensions: Sequence[str]
) -> Iterator[Family]:
    by_name = {name: [each for each in channels if each.dimension == name] for name in dimensions}
    backlogs = {name: sum(each.backlog_records for each in own) for name, own in by_name.items()}
    yield sampled_family(metrics.BACKLOG_RECORDS, _known(backlogs))
    credit = {
        name: {
            CreditKind.EXCLUSIVE: sum(each.exclusive_records for each in own),
            CreditKind.FLOATING: sum(each.floating_records for each in own),
        }
        for name, own in by_name.items()
    }
    yield sampled_family(metrics.CREDIT_RECORDS, _by_kind(credit, CreditKind))
    states = {
        name: Counter(ChannelState.IDLE if each.is_idle else ChannelState.ACTIVE for each in own)
        for name, own in by_name.items()
    }
    yield sampled_family(metrics.CHANNELS, _by_kind(states, ChannelState))


def _certificate_families(certificate: CertificateStatistics | None) -> Iterator[Family]:
    expiry: Samples = []
    renewals: Samples = []
    if certificate is not None:
        expiry = [((), certificate.expires_s)]
        renewals = [
            ((RenewalResult.TAKEN.value,), certificate.taken),
            ((RenewalResult.REFUSED.value,), certificate.refused),
        ]
    yield sampled_family(metrics.TLS_CERTIFICATE_EXPIRY_SECONDS, expiry)
    yield sampled_family(metrics.TLS_CERTIFICATE_RENEWALS, renewals)
