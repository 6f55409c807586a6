"""The engine's durations and sizes as Prometheus histograms and counters.

Totals and levels are not kept here: `collector` pulls them from the engine's statistics.
"""

from collections.abc import Iterator

from prometheus_client import Counter
from prometheus_client.metrics_core import Metric as Family

from service.engine.observer import QueryResult
from service.observability.distribution import Distribution
from service.observability.metrics import (
    BACKEND_BATCH_KEYS,
    BACKEND_QUERIES,
    BACKEND_QUERY_SECONDS,
    LOOKUP_SECONDS,
)

# A cache hit takes microseconds, a query milliseconds, a timeout seconds: all must be told apart.
_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1)
_SECONDS_BUCKETS = (*_SECONDS, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_KEYS_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)


class PrometheusObserver:
    """Implements `service.engine.observer.Observer`; registered once, in its owner's registry."""

    def __init__(self) -> None:
        self._lookup_seconds = Distribution(LOOKUP_SECONDS, _SECONDS_BUCKETS)
        self._query_seconds = Distribution(BACKEND_QUERY_SECONDS, _SECONDS_BUCKETS)
        self._batch_keys = Distribution(BACKEND_BATCH_KEYS, _KEYS_BUCKETS)
        self._queries = Counter(
            BACKEND_QUERIES.name, BACKEND_QUERIES.help, BACKEND_QUERIES.labels, registry=None
        )

    def query_ended(
        self, dimension: str, *, keys: int, seconds: float, result: QueryResult
    ) -> None:
        """Count the query, whatever its result, with its size and duration."""
        self._queries.labels(dimension, result.value).inc()
        self._query_seconds.observe(dimension, seconds)
        self._batch_keys.observe(dimension, keys)

    def lookup_ended(self, dimension: str, *, seconds: float) -> None:
        """Note how long the request took."""
        self._lookup_seconds.observe(dimension, seconds)

    def collect(self) -> Iterator[Family]:
        """All families, without the `_created` series that nobody asked for."""
        for family in self._queries.collect():
            samples = family.samples
            family.samples = [each for each in samples if not each.name.endswith("_created")]
            yield family
        for each in (self._lookup_seconds, self._query_seconds, self._batch_keys):
            yield each.family()
