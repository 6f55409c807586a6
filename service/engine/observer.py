"""Observer port: durations and sizes of queries and lookups, as they end.

Totals and levels are in `statistics()` and are read at scrape time.
"""

from enum import StrEnum
from typing import Protocol

from lookup_core.errors import ErrorCode


class QueryStatus(StrEnum):
    """The result of a query, as in the label `result` of the metrics."""

    OK = "ok"
    ERROR = "error"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"

    @classmethod
    def of_failure(cls, code: ErrorCode) -> "QueryStatus":
        """The result of a query that failed with this code."""
        return cls.TIMEOUT if code is ErrorCode.TIMEOUT else cls.ERROR


class Observer(Protocol):
    """Receives events of the engine; never raises, never blocks."""

    def query_ended(
        self, dimension: str, *, keys: int, seconds: float, result: QueryStatus
    ) -> None:
        """A query to a backend ended; every attempt counts."""

    def lookup_ended(self, dimension: str, *, seconds: float) -> None:
        """A lookup, of any number of keys, got its last answer."""
