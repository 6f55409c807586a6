"""What the engine tells about durations and sizes, while they happen.

Totals and levels are not told: they stand in `statistics()` and are read at scrape time.
"""

from enum import StrEnum
from typing import Protocol

from lookup_core.errors import ErrorCode


class QueryStatus(StrEnum):
    """How a query to a backend ended, as the label `result` of the metrics."""

    OK = "ok"
    ERROR = "error"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"

    @classmethod
    def of_failure(cls, code: ErrorCode) -> "QueryStatus":
        """The word for a query that failed with this code."""
        return cls.TIMEOUT if code is ErrorCode.TIMEOUT else cls.ERROR


class Observer(Protocol):
    """Facts of the engine, named after what happened; never raises, never blocks."""

    def query_ended(
        self, dimension: str, *, keys: int, seconds: float, result: QueryStatus
    ) -> None:
        """One query to a backend ended; every attempt counts."""

    def lookup_ended(self, dimension: str, *, seconds: float) -> None:
        """One lookup request (of any number of keys) got its last answer."""


class NullObserver:
    """Listens to nothing; the default."""

    def query_ended(
        self, dimension: str, *, keys: int, seconds: float, result: QueryStatus
    ) -> None:
        """Ignore it."""

    def lookup_ended(self, dimension: str, *, seconds: float) -> None:
        """Ignore it."""
