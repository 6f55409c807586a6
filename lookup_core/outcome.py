"""How a lookup ended; the numbers are the wire's, the names are everybody's.

Apart from the errors, because most outcomes are not errors.
"""

from enum import IntEnum


class Outcome(IntEnum):
    """The terminal outcome of one key of a lookup.

    The values travel as one byte in RESULT frames and never change their meaning.
    """

    HIT = 0
    FETCHED = 1
    MISSING = 2
    STALE = 3
    DEFAULT = 4
    TIMEOUT = 5
    ERROR = 6

    @property
    def label(self) -> str:
        """The lower-case word that metrics, JSON and Spark columns show."""
        return self.name.lower()

    @property
    def has_row(self) -> bool:
        """Whether an answer with this outcome carries a row."""
        return self in _WITH_ROW


_WITH_ROW = frozenset({Outcome.HIT, Outcome.FETCHED, Outcome.STALE, Outcome.DEFAULT})
