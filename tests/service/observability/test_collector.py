"""Statistics become samples as they are at the scrape, for every dimension and channel."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from prometheus_client.metrics_core import Metric as Family

from lookup_core.answer import Outcome
from lookup_core.protection.circuit_breaker import BreakerState
from lookup_core.protocol.server_channel import ChannelStatistics
from lookup_core.settings import DimensionSettings
from lookup_core.statistics import (
    CacheStatistics,
    DimensionStatistics,
    EvictionReason,
    InvalidationOrigin,
    RefreshStatistics,
    no_statistics,
)
from service.observability.collector import Collector
from service.resources.memory_guard import MemoryStatistics, PressureLevel

NOTHING = no_statistics(DimensionSettings("airports"))
BUSY = replace(
    NOTHING,
    outcomes={Outcome.HIT: 7, Outcome.ERROR: 1},
    coalesced_keys=2,
    retries=3,
    invalidations={InvalidationOrigin.ADMIN: 4},
    waiting_keys=5,
    queued_keys=12,
    queries_in_flight=13,
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


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sidelook_coalesced_keys_total", 2),
        ("sidelook_retries_total", 3),
        ("sidelook_fenced_keys_total", 11),
        ("sidelook_in_flight_records", 5),
        ("sidelook_concurrency_limit", 6),
        ("sidelook_breaker_state", 2),
        ("sidelook_dimension_staleness_seconds", 8.5),
        ("sidelook_cache_rows", 9),
        ("sidelook_cache_bytes", 1000),
        ("sidelook_cache_max_bytes", 2000),
        ("sidelook_queued_keys", 12),
        ("sidelook_queries_in_flight", 13),
    ],
)
def test_figures_of_a_dimension_are_told(name: str, value: float) -> None:
    """Totals and levels come out as the dimension counts them."""
    assert _samples(_collector(BUSY), name) == {("airports",): value}


def test_all_outcomes_are_told_from_the_start() -> None:
    """An outcome that has not occurred is told as zero, so that a rate sees its first step."""
    told = _samples(_collector(BUSY), "sidelook_lookups_total")

    zeros = {("airports", outcome.label): 0 for outcome in Outcome}
    assert told == {**zeros, ("airports", "hit"): 7, ("airports", "error"): 1}


def test_evictions_are_told_by_reason() -> None:
    """Every reason has a sample, whether it occurred or not."""
    told = _samples(_collector(BUSY), "sidelook_cache_evictions_total")

    zeros = {("airports", reason.value): 0 for reason in EvictionReason}
    assert told == {**zeros, ("airports", "size"): 10}


def test_invalidations_are_told_by_origin() -> None:
    """It is told who said that rows may have changed."""
    told = _samples(_collector(BUSY), "sidelook_invalidations_total")

    assert told == {
        ("airports", "admin"): 4,
        ("airports", "changelog"): 0,
        ("airports", "notification"): 0,
        ("airports", "failover"): 0,
        ("airports", "schema"): 0,
    }


def test_lookups_without_an_index_are_told() -> None:
    """Whether the store has an index for the key; nothing as long as it has not said so."""
    told = _samples(_collector(NOTHING), "sidelook_lookup_uses_index")

    assert told == {("airports",): 0, ("airlines",): 1}


def test_unavailable_dimensions_are_told() -> None:
    """Each dimension has a sample, of which an alert can be made."""
    collectors = _collector(NOTHING), _collector(NOTHING, undescribed=("airports",))

    told = [_samples(each, "sidelook_dimension_available") for each in collectors]

    assert told == [{("airports",): 1}, {("airports",): 0}]


def test_channels_are_summed_by_dimension() -> None:
    """Credit and backlog are sums over the channels; a dimension without channels has zeros."""
    collector = _collector(NOTHING, CHANNEL, replace(CHANNEL, channel=2))

    assert _samples(collector, "sidelook_credit_records") == {
        ("airports", "exclusive"): 128,
        ("airports", "floating"): 72,
    }
    assert _samples(collector, "sidelook_backlog_records") == {("airports",): 40}
    assert _samples(_collector(NOTHING), "sidelook_backlog_records") == {("airports",): 0}


def test_channels_are_counted_by_state() -> None:
    """Idle and active channels are told apart, and a state without channels is zero."""
    told = _samples(_collector(NOTHING, CHANNEL), "sidelook_channels")

    assert told == {("airports", "active"): 1, ("airports", "idle"): 0}


def test_watermark_is_told_in_seconds() -> None:
    """The streams' event time is told as it is kept, as Unix time."""
    told = _samples(_collector(NOTHING), "sidelook_stream_watermark_seconds")

    assert told == {("airports",): 5.25}


def test_process_figures_have_no_dimension() -> None:
    """The event loop's lag and the version belong to the process as a whole."""
    collector = _collector(NOTHING)

    assert _samples(collector, "sidelook_event_loop_lag_seconds") == {(): 0.25}
    assert _samples(collector, "sidelook_memory_resident_bytes") == {(): 3_000}
    assert _samples(collector, "sidelook_memory_used_ratio") == {(): 0.93}
    assert _samples(collector, "sidelook_memory_pressure_level") == {(): 2}
    assert _samples(collector, "sidelook_build_info") == {("1.2.3",): 1}


def _collector(
    statistics: DimensionStatistics, *channels: ChannelStatistics, undescribed: Sequence[str] = ()
) -> Collector:
    return Collector(
        dimensions=lambda: {"airports": statistics},
        refreshes=lambda: {"airports": RefreshStatistics(staleness_s=8.5)},
        channels=lambda: channels,
        watermarks_ms=lambda: {"airports": 5_250},
        undescribed=lambda: undescribed,
        uses_index=lambda: {"airports": False, "airlines": True, "planes": None},
        lag_s=lambda: 0.25,
        memory=lambda: MemoryStatistics(3_000, 0.93, PressureLevel.STOP_CREDIT),
        version="1.2.3",
    )


def _samples(collector: Collector, name: str) -> dict[tuple[str, ...], float]:
    families: list[Family] = list(collector.collect())
    samples = [sample for family in families for sample in family.samples]
    return {tuple(each.labels.values()): each.value for each in samples if each.name == name}
