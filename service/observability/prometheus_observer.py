"""Prometheus observer: histograms and counters of queries and lookups, and their text format."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client import Counter, generate_latest
from prometheus_client.metrics_core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from service.engine.observer import QueryStatus
from service.observability.metrics import (
    BACKEND_BATCH_KEYS,
    BACKEND_QUERIES,
    BACKEND_QUERY_SECONDS,
    LOOKUP_SECONDS,
    Metric,
)


class Distribution:
    """One histogram per dimension; `bounds` ascend, and +Inf follows them."""

    def __init__(self, metric: Metric, bounds: Sequence[float]) -> None:
        self._metric = metric
        self._bounds = bounds
        self._labels = [*(str(float(bound)) for bound in bounds), "+Inf"]
        # {dimension: its counts}: each value counts in the first bucket that covers it.
        self._counts = defaultdict[str, list[int]](lambda: [0] * len(self._labels))
        self._sums = defaultdict[str, float](float)  # {dimension: sum of its values}

    def observe(self, dimension: str, value: float) -> None:
        """Count a value."""
        self._counts[dimension][bisect_left(self._bounds, value)] += 1
        self._sums[dimension] += value

    def family(self) -> HistogramMetricFamily:
        """The histograms of all dimensions, for a scrape."""
        metric = self._metric
        family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for dimension, counts in self._counts.items():
            buckets = list(zip(self._labels, accumulate(counts), strict=True))
            family.add_metric([dimension], buckets, sum_value=self._sums[dimension])
        return family


def exposition(*collectors: Collector) -> bytes:
    """The text format of what the collectors report, in version 0.0.4."""
    return b"".join(map(generate_latest, collectors))


# Separates cache hits (microseconds), queries (milliseconds) and timeouts (seconds).
_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1)
_SECONDS_BUCKETS = (*_SECONDS, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_KEYS_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)


class PrometheusObserver:
    """Implements `service.engine.observer.Observer`."""

    def __init__(self) -> None:
        self._lookup_seconds = Distribution(LOOKUP_SECONDS, _SECONDS_BUCKETS)
        self._query_seconds = Distribution(BACKEND_QUERY_SECONDS, _SECONDS_BUCKETS)
        self._batch_keys = Distribution(BACKEND_BATCH_KEYS, _KEYS_BUCKETS)
        self._queries = Counter(
            BACKEND_QUERIES.name, BACKEND_QUERIES.help, BACKEND_QUERIES.labels, registry=None
        )

    def query_ended(
        self, dimension: str, *, keys: int, seconds: float, result: QueryStatus
    ) -> None:
        """Count the query, with its size and duration."""
        self._queries.labels(dimension, result.value).inc()
        self._query_seconds.observe(dimension, seconds)
        self._batch_keys.observe(dimension, keys)

    def lookup_ended(self, dimension: str, *, seconds: float) -> None:
        """Count the lookup's duration."""
        self._lookup_seconds.observe(dimension, seconds)

    def collect(self) -> Iterator[Family]:
        """All families, without the library's `_created` series."""
        for family in self._queries.collect():
            samples = family.samples
            family.samples = [each for each in samples if not each.name.endswith("_created")]
            yield family
        for each in (self._lookup_seconds, self._query_seconds, self._batch_keys):
            yield each.family()
