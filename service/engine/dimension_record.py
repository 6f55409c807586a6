"""What one dimension did, beyond what its state counts: queries, their keys, and recent errors.

An observer before the observer: it keeps what people ask a running service for, and passes all on.
"""

from collections.abc import Callable

from service.engine.observer import Observer, QueryResult
from service.engine.recent_errors import RecentErrors


class DimensionRecord:
    """Implements `service.engine.observer.Observer`; outlives the states of changing schemas."""

    def __init__(self, observer: Observer, clock: Callable[[], float]) -> None:
        self._observer = observer
        self.errors = RecentErrors(clock)
        self.queries = 0  # every try counts
        self.batch_keys = 0  # distinct keys of all these queries

    def query_ended(
        self, dimension: str, *, keys: int, seconds: float, result: QueryResult
    ) -> None:
        """Count the query, whatever its result."""
        self.queries += 1
        self.batch_keys += keys
        self._observer.query_ended(dimension, keys=keys, seconds=seconds, result=result)

    def lookup_ended(self, dimension: str, *, seconds: float) -> None:
        """Pass it on."""
        self._observer.lookup_ended(dimension, seconds=seconds)
