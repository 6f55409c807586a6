"""Families of samples as prometheus-client wants them, from one of our metrics and its values.

Not for histograms: see `distribution`.
"""

from collections.abc import Iterable
from typing import TypeAlias

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family

from service.observability.metrics import Metric

Samples: TypeAlias = Iterable[tuple[tuple[str, ...], float]]  # (label values, value)


def sampled_counter(metric: Metric, samples: Samples) -> Family:
    """A total, which only ever grows."""
    family = CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def sampled_gauge(metric: Metric, samples: Samples) -> Family:
    """A level."""
    family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family
