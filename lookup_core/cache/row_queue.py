"""The queues in which what is cached waits for its eviction, as in S3-FIFO.

Names only: who comes in where, and who goes, is `eviction`'s business.
"""

from enum import Enum


class RowQueue(Enum):
    """Where an entry stands."""

    SMALL = "small"  # rows that came in lately, until they have proved themselves
    MAIN = "main"  # rows that were asked for again
    ABSENT = "absent"  # keys that have no row
