"""How dimensions are loaded and followed becomes samples, and what is unknown becomes none."""

from dataclasses import replace

from lookup_core.freshness.feed_health import FeedState
from lookup_core.sources.splits import SplitProgress, SplitState
from lookup_core.statistics import (
    FeedStatistics,
    LoadResult,
    LoadStatistics,
    RefreshStatistics,
    UnusedMessage,
)
from service.observability.collector import refresh_families

AHEAD = SplitProgress("flights-0", SplitState.ASSIGNED, position=7, total=10, failures_total=2)
WAITING = SplitProgress("flights-1", SplitState.WAITING, failures_total=3)
ENDED = SplitProgress("1 to 9", SplitState.FINISHED, position=9, total=9, failures_total=1)
FOLLOWED = RefreshStatistics(1.5, FeedStatistics(FeedState.LIVE, 5_250, (AHEAD, WAITING)))
LOADED = RefreshStatistics(
    2.5,
    load=LoadStatistics(
        is_whole=True,
        is_loading=True,
        rows=400,
        last_seconds=3.25,
        counts={LoadResult.OK: 2, LoadResult.ERROR: 1, LoadResult.OUTDATED: 0},
        splits=(ENDED,),
    ),
)
Samples = dict[tuple[str, ...], float]


def test_dimensions_without_sources_tell_staleness_only() -> None:
    """Nothing else is told of a dimension that is neither followed nor held whole."""
    told = _told(RefreshStatistics(8.5))

    assert told == {"sidelook_dimension_staleness_seconds": {("planes",): 8.5}}


def test_staleness_of_nothing_is_not_told() -> None:
    """Zero would be taken for fresh; what is not whole or not live shows from the start."""
    told = _told(RefreshStatistics(None, FeedStatistics(FeedState.STARTING), load=LoadStatistics()))

    assert "sidelook_dimension_staleness_seconds" not in told
    assert told["sidelook_dimension_feed_live"] == {("planes",): 0}
    assert told["sidelook_dimension_whole"] == {("planes",): 0}
    assert set(told["sidelook_dimension_loads_total"].values()) == {0}


def test_limit_of_staleness_is_told_where_there_is_one() -> None:
    """So that an alert needs no figure of its own; a dimension without a bound has no sample."""
    told = _told(RefreshStatistics(staleness_limit_s=600.0))

    assert told == {"sidelook_dimension_staleness_limit_seconds": {("planes",): 600.0}}


def test_feed_is_told() -> None:
    """Its state, its watermark as Unix time, and how much it is behind."""
    told = _told(FOLLOWED)

    assert told["sidelook_dimension_feed_live"] == {("planes",): 1}
    assert told["sidelook_dimension_watermark_seconds"] == {("planes",): 5.25}
    assert told["sidelook_dimension_feed_backlog"] == {("planes",): 3}
    assert [name for name in told if "load" in name or "whole" in name] == []


def test_unused_messages_are_counted() -> None:
    """By why they told nothing of a row; undecodable ones can be alerted on."""
    counts = {UnusedMessage.IGNORED: 4, UnusedMessage.UNDECODABLE: 1}
    feed = FeedStatistics(FeedState.LIVE, unused_messages=counts)

    assert _told(RefreshStatistics(feed=feed))["sidelook_dimension_feed_unused_messages_total"] == {
        ("planes", "ignored"): 4,
        ("planes", "undecodable"): 1,
    }


def test_absent_watermark_is_not_told() -> None:
    """A feed that has told no time has no watermark, which is not the same as an old one."""
    told = _told(RefreshStatistics(feed=FeedStatistics(FeedState.SILENT)))

    assert "sidelook_dimension_watermark_seconds" not in told
    assert told["sidelook_dimension_feed_live"] == {("planes",): 0}


def test_load_is_told() -> None:
    """Whether the table is whole, what is read, and how long that took the last time."""
    told = _told(LOADED)

    assert told["sidelook_dimension_whole"] == {("planes",): 1}
    assert told["sidelook_dimension_loading"] == {("planes",): 1}
    assert told["sidelook_dimension_load_rows"] == {("planes",): 400}
    assert told["sidelook_dimension_load_seconds"] == {("planes",): 3.25}


def test_loads_are_counted_by_result() -> None:
    """Every result has a sample, whether it occurred or not; failed ones can be alerted on."""
    assert _told(LOADED)["sidelook_dimension_loads_total"] == {
        ("planes", "ok"): 2,
        ("planes", "error"): 1,
        ("planes", "outdated"): 0,
    }


def test_absent_duration_is_not_told() -> None:
    """Before the first load has ended well there is no duration."""
    assert "sidelook_dimension_load_seconds" not in _told(RefreshStatistics(load=LoadStatistics()))


def test_splits_are_counted_by_state() -> None:
    """The parts of both sources, by who has them."""
    told = _told(replace(FOLLOWED, load=LOADED.load))

    assert told["sidelook_dimension_splits"] == {
        ("planes", "unassigned"): 0,
        ("planes", "assigned"): 1,
        ("planes", "waiting"): 1,
        ("planes", "finished"): 1,
        ("planes", "failed"): 0,
    }


def test_split_failures_are_counted_apart() -> None:
    """A load that begins anew at zero takes nothing away from the feed's count."""
    told = _told(replace(FOLLOWED, load=LOADED.load))

    failures = told["sidelook_dimension_split_failures_total"]
    assert failures == {("planes", "feed"): 5, ("planes", "load"): 1}


def _told(refresh: RefreshStatistics) -> dict[str, Samples]:
    """All samples of `planes`, by their names and their labels' values."""
    told: dict[str, Samples] = {}
    for family in refresh_families({"planes": refresh}):
        for sample in family.samples:
            told.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return told
