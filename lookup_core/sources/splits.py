"""Splits of a source, after Flink's FLIP-27: identity, reading mode and progress."""

from dataclasses import dataclass

from lookup_core.compatibility import TextEnum
from lookup_core.event_time.watermark_valve import NO_WATERMARK_MS


@dataclass(frozen=True, slots=True)
class Split:
    """One part of a source; ids are unique within it."""

    id: str


class SplitState(TextEnum):
    """The state of a split."""

    UNASSIGNED = "unassigned"
    ASSIGNED = "assigned"
    WAITING = "waiting"  # for a retry after a failure
    FINISHED = "finished"
    FAILED = "failed"  # permanently


@dataclass(frozen=True, slots=True)
class SplitProgress:
    """State and progress of one split."""

    split_id: str
    state: SplitState
    position: int | None = None  # everything before it was read; None: unknown
    total: int | None = None  # estimate of the final position
    is_caught_up: bool = False  # read up to the end at the time of its assignment
    failures_total: int = 0
    last_error: str | None = None  # since its last progress
    watermark_ms: int = NO_WATERMARK_MS
    is_idle: bool = False  # it does not hold the watermark back
    is_paused: bool = False  # it is too far ahead of the slowest split


class ReadingMode(TextEnum):
    """The number of readers, and of splits for each reader."""

    SEQUENTIAL = "sequential"  # one reader, one split at a time
    MULTIPLEXED = "multiplexed"  # one reader for all splits
    PARALLEL = "parallel"  # several readers, one split each
