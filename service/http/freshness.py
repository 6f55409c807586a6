"""How a dimension is loaded and followed, as JSON values.

Only their form: what they say is the engine's.
"""

from typing import Any

from lookup_core.refresh_statistics import FeedStatistics, LoadStatistics, RefreshStatistics
from lookup_core.sources.split_progress import SplitProgress
from lookup_core.watermark_valve import NO_WATERMARK_MS


def freshness(refresh: RefreshStatistics) -> dict[str, Any]:
    """All of it; null where nothing is followed, or nothing is held whole."""
    return {
        "staleness_s": refresh.staleness_s,
        "feed": None if refresh.feed is None else _feed(refresh.feed),
        "load": None if refresh.load is None else _load(refresh.load),
    }


def _feed(feed: FeedStatistics) -> dict[str, Any]:
    return {
        "state": feed.state.value,
        "watermark_ms": _watermark_ms(feed.watermark_ms),
        "last_error": feed.last_error,
        "unused_messages": {why.value: count for why, count in feed.unused_messages.items()},
        "splits": [_split(each) for each in feed.splits],
    }


def _load(load: LoadStatistics) -> dict[str, Any]:
    return {
        "is_whole": load.is_whole,
        "is_loading": load.is_loading,
        "rows": load.rows,
        "held_rows": load.held_rows,
        "expected_rows": load.expected_rows,
        "last_seconds": load.last_seconds,
        "last_error": load.last_error,
        "counts": {result.value: count for result, count in load.counts.items()},
        "splits": [_split(each) for each in load.splits],
    }


def _split(split: SplitProgress) -> dict[str, Any]:
    return {
        "id": split.split_id,
        "state": split.state.value,
        "position": split.position,
        "total": split.total,
        "is_caught_up": split.is_caught_up,
        "failures": split.failures_total,
        "last_error": split.last_error,
        "watermark_ms": _watermark_ms(split.watermark_ms),
        "is_idle": split.is_idle,
        "is_paused": split.is_paused,
    }


def _watermark_ms(watermark_ms: int) -> int | None:
    return None if watermark_ms == NO_WATERMARK_MS else watermark_ms
