"""How the splits of a source are read, after the three ways of Flink's FLIP-27.

A word only; who carries it out is the engine's coordinator.
"""

from enum import StrEnum


class ReadingMode(StrEnum):
    """How many splits a reader has at a time, and how many readers there are."""

    SEQUENTIAL = "sequential"  # one reader, one split after the other
    MULTIPLEXED = "multiplexed"  # one reader of all splits
    PARALLEL = "parallel"  # a reader and a buffer for each split, several at a time
