"""How often values fell below each of some bounds, by dimension, as Prometheus tells histograms.

For one thread, as all of the engine is: without the locks it takes a fifth of the library's time.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client.metrics_core import HistogramMetricFamily

from service.observability.metrics import Metric


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
