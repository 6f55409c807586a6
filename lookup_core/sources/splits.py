"""Splits of a source: identity, reading mode and progress.

After Flink's FLIP-27.
"""

from dataclasses import dataclass
from enum import StrEnum

from lookup_core.watermark_valve import NO_WATERMARK_MS


@dataclass(frozen=True, slots=True)
class Split:
    """One part; two of one source differ in their ids."""

    id: str


class SplitState(StrEnum):
    """Who has a split; it is in exactly one of these."""

    UNASSIGNED = "unassigned"
    ASSIGNED = "assigned"
    WAITING = "waiting"  # it failed, and is tried again later
    FINISHED = "finished"
    FAILED = "failed"  # for good


@dataclass(frozen=True, slots=True)
class SplitProgress:
    """What is known of one split."""

    split_id: str
    state: SplitState
    position: int | None = None  # all before it was taken; None: nothing was told yet
    total: int | None = None  # about where `position` will end, if it is known
    is_caught_up: bool = False  # all was taken that was there when its reader was given it
    failures_total: int = 0
    last_error: str | None = None  # of the failures since it last got on
    watermark_ms: int = NO_WATERMARK_MS
    is_idle: bool = False  # it holds nobody's watermark back
    is_paused: bool = False  # it is too far ahead of the slowest


class ReadingMode(StrEnum):
    """How many splits a reader has at a time, and how many readers there are."""

    SEQUENTIAL = "sequential"  # one reader, one split after the other
    MULTIPLEXED = "multiplexed"  # one reader of all splits
    PARALLEL = "parallel"  # a reader and a buffer for each split, several at a time
