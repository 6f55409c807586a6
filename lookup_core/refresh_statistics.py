"""Snapshots of how a dimension is loaded and followed; for metrics and for people.

Values only: who knows them stands in the engine.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from lookup_core.freshness.feed_health import FeedState
from lookup_core.sources.split_progress import SplitProgress
from lookup_core.watermark_valve import NO_WATERMARK_MS


class LoadResult(StrEnum):
    """How a load of a whole table ended."""

    OK = "ok"
    ERROR = "error"
    OUTDATED = "outdated"  # any row may have changed meanwhile; it is begun anew


class UnusedMessage(StrEnum):
    """Why a message of a feed tells no change of a row."""

    IGNORED = "ignored"  # it says nothing of the table
    UNDECODABLE = "undecodable"  # it counts as a change of the whole table


@dataclass(frozen=True, slots=True)
class FeedStatistics:
    """What is known of the changes that are followed."""

    state: FeedState
    watermark_ms: int = NO_WATERMARK_MS  # no change of an earlier event time follows
    splits: Sequence[SplitProgress] = ()
    # Of the last search for splits, if it failed; else of a split that has not got on since.
    last_error: str | None = None
    unused_messages: dict[UnusedMessage, int] = field(
        default_factory=lambda: dict.fromkeys(UnusedMessage, 0)
    )


@dataclass(frozen=True, slots=True)
class LoadStatistics:
    """What is known of the table that is held whole."""

    is_whole: bool = False
    is_loading: bool = False
    rows: int = 0  # read by the load under way, else by the last one
    held_rows: int = 0  # of the former load, as long as the next one has not ended well
    expected_rows: int | None = None  # about
    last_seconds: float | None = None  # of the last one that ended well
    last_error: str | None = None  # of a try of the load under way, else of the last one
    counts: dict[LoadResult, int] = field(default_factory=lambda: dict.fromkeys(LoadResult, 0))
    splits: Sequence[SplitProgress] = ()


@dataclass(frozen=True, slots=True)
class RefreshStatistics:
    """Both, where there are such; `staleness_s`: how far what is held may lag its table.

    None while nothing is held: zero would be taken for fresh. `staleness_limit_s` is how far it may
    by the settings, None where they set no bound.
    """

    staleness_s: float | None = None
    feed: FeedStatistics | None = None
    load: LoadStatistics | None = None
    staleness_limit_s: float | None = None
