"""Reads the statistics of dimensions and channels when Prometheus asks, and only then.

Counts nothing itself: totals and levels stand where they happen.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from prometheus_client.metrics_core import Metric as Family

from lookup_core.outcome import Outcome
from lookup_core.protocol.server_channel import ChannelStatistics
from lookup_core.refresh_statistics import RefreshStatistics
from lookup_core.statistics import DimensionStatistics, EvictionReason, InvalidationOrigin
from service.observability import metrics
from service.observability.metrics import (
    ChannelState,
    CreditKind,
    Metric,
)
from service.observability.refresh_families import refresh_families
from service.observability.sampled_family import Samples, sampled_family

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
        yield sampled_family(metrics.STREAM_WATERMARK_SECONDS, _seconds(self.watermarks_ms()))
        yield sampled_family(
            metrics.DIMENSION_AVAILABLE, _availability(dimensions, self.undescribed())
        )
        yield sampled_family(metrics.LOOKUP_USES_INDEX, _known(self.uses_index()))
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
    yield sampled_family(metrics.CHANNELS, _states(by_name))


def _credit(by_name: Mapping[str, Sequence[ChannelStatistics]]) -> Samples:
    for name, own in by_name.items():
        yield (name, CreditKind.EXCLUSIVE.value), sum(each.exclusive_records for each in own)
        yield (name, CreditKind.FLOATING.value), sum(each.floating_records for each in own)


def _states(by_name: Mapping[str, Sequence[ChannelStatistics]]) -> Samples:
    for name, own in by_name.items():
        idle = sum(each.is_idle for each in own)
        yield (name, ChannelState.ACTIVE.value), len(own) - idle
        yield (name, ChannelState.IDLE.value), idle


def _availability(dimensions: Iterable[str], undescribed: Container[str]) -> Samples:
    return [((name,), name not in undescribed) for name in dimensions]


def _known(are_so: Mapping[str, bool | None]) -> Samples:
    return [((name,), is_so) for name, is_so in are_so.items() if is_so is not None]


def _seconds(watermarks_ms: Mapping[str, int]) -> Samples:
    for name, watermark_ms in watermarks_ms.items():
        yield (name,), watermark_ms / 1000
