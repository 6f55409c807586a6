"""Statistics of a busy sidecar, and the exposition that Prometheus would scrape of it."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from lookup_core.answer import Outcome
from lookup_core.freshness.feed_health import FeedState
from lookup_core.protection.circuit_breaker import BreakerState
from lookup_core.protocol.server_channel import ChannelStatistics
from lookup_core.settings import DimensionSettings
from lookup_core.sources.splits import SplitProgress, SplitState
from lookup_core.statistics import (
    AuditResult,
    CacheStatistics,
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
    no_statistics,
)
from service.engine.observer import QueryStatus
from service.observability.collector import Collector
from service.observability.prometheus_observer import PrometheusObserver, exposition
from service.resources.memory_guard import PressureLevel

IDLE = no_statistics(DimensionSettings("airlines"))
BUSY = replace(
    no_statistics(DimensionSettings("airports")),
    outcomes={Outcome.HIT: 7, Outcome.ERROR: 1},
    coalesced_keys=2,
    retries=3,
    invalidations={InvalidationOrigin.ADMIN: 4},
    waiting_keys=5,
    queued_keys=12,
    queries_in_flight=13,
    connection_wait_s=1.5,
    concurrency_limit=6,
    breaker_state=BreakerState.OPEN,
    fenced_keys=11,
    cache=CacheStatistics(9, 1000, 2000, {EvictionReason.SIZE: 10}),
)
CHANNEL = ChannelStatistics(
    connection=1,
    channel=1,
    dimension="airports",
    origin="task 7",
    exclusive_records=64,
    floating_records=36,
    credit_records=90,
    backlog_records=20,
    in_flight_records=3,
    watermark_ms=5_000,
    is_idle=False,
)
_AHEAD = SplitProgress("flights-0", SplitState.ASSIGNED, position=7, total=10, failures_total=2)
_BEYOND = SplitProgress("flights-2", SplitState.ASSIGNED, position=11, total=10)
_WAITING = SplitProgress("flights-1", SplitState.WAITING, failures_total=3)
_ENDED = SplitProgress("1 to 9", SplitState.FINISHED, position=9, total=9, failures_total=1)
FOLLOWED = RefreshStatistics(
    1.5,
    FeedStatistics(
        FeedState.LIVE,
        5_250,
        (_AHEAD, _BEYOND, _WAITING),
        unused_messages={UnusedMessage.IGNORED: 4, UnusedMessage.UNDECODABLE: 1},
        audited_keys={
            AuditResult.AGREED: 50,
            AuditResult.SUSPECT: 2,
            AuditResult.CONTRADICTED: 1,
        },
    ),
    staleness_limit_s=600.0,
    load=LoadStatistics(
        is_whole=True,
        is_loading=True,
        rows=400,
        last_seconds=3.25,
        counts={LoadResult.OK: 2, LoadResult.ERROR: 1, LoadResult.OUTDATED: 0},
        splits=(_ENDED,),
    ),
)
STARTING = RefreshStatistics(
    None, FeedStatistics(FeedState.INCOMPLETE), load=LoadStatistics()
)  # no row is trusted


def collector(
    dimensions: Mapping[str, DimensionStatistics] = MappingProxyType({}),
    refreshes: Mapping[str, RefreshStatistics] = MappingProxyType({}),
) -> Collector:
    """The collector of a sidecar with these dimensions; `airports` has three channels."""
    idle = replace(CHANNEL, channel=3, is_idle=True)
    return Collector(
        dimensions=lambda: dimensions,
        refreshes=lambda: refreshes,
        channels=lambda: [CHANNEL, replace(CHANNEL, channel=2), idle],
        watermarks_ms=lambda: {"airports": 5_250},
        undescribed=lambda: {"airlines"},
        uses_index=lambda: {"airports": False, "airlines": True, "planes": None},
        lag_s=lambda: 0.25,
        is_reachable=lambda: False,
        memory=lambda: MemoryStatistics(3_000, 0.93, PressureLevel.STOP_CREDIT),
        version="1.2.3",
        certificate=lambda: CertificateStatistics(1e9, taken=2, refused=1),
    )


def busy_exposition() -> bytes:
    """All metrics of a sidecar, with samples of each."""
    observer = PrometheusObserver()
    for result, seconds in [(QueryStatus.OK, 0.5), (QueryStatus.OK, 2.0), (QueryStatus.TIMEOUT, 9)]:
        observer.query_ended("airports", keys=40, seconds=seconds, result=result)
    observer.lookup_ended("airports", seconds=0.25)
    dimensions = {"airports": BUSY, "airlines": IDLE}
    refreshes = {
        "airports": RefreshStatistics(8.5),
        "airlines": STARTING,
        "planes": FOLLOWED,
    }
    return exposition(observer, collector(dimensions, refreshes))
