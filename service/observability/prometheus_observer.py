"""Histograms and counters of the engine, and the text that Prometheus scrapes."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, generate_latest
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


@dataclass(slots=True)
class _Part:
    counts: list[int]  # by bucket, each value in the first that may have it
    sum: float = 0.0


class Distribution:
    """One histogram; `bounds` ascend, what is above the last has a bucket of its own."""

    def __init__(self, metric: Metric, bounds: Sequence[float]) -> None:
        self._metric = metric
        self._bounds = bounds
        self._labels = [*(str(float(bound)) for bound in bounds), "+Inf"]
        self._parts: dict[str, _Part] = {}  # {dimension: its part}

    def observe(self, dimension: str, value: float) -> None:
        """Count a value."""
        part = self._parts.get(dimension)
        if part is None:
            part = self._parts[dimension] = _Part([0] * len(self._labels))
        part.counts[bisect_left(self._bounds, value)] += 1
        part.sum += value

    def family(self) -> HistogramMetricFamily:
        """All that was counted, for a scrape."""
        metric = self._metric
        family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for dimension, part in self._parts.items():
            buckets = list(zip(self._labels, accumulate(part.counts), strict=True))
            family.add_metric([dimension], buckets, sum_value=part.sum)
        return family


class Exposition:
    """Renders what its collectors report."""

    def __init__(self, collectors: Sequence[Collector]) -> None:
        self._registry = CollectorRegistry()
        for collector in collectors:
            self._registry.register(collector)

    def render(self) -> bytes:
        """All families in the Prometheus text format 0.0.4."""
        return generate_latest(self._registry)


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
        self, dimension: str, *, keys: int, seconds: float, result: QueryStatus
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
