"""A metric and its values as prometheus-client wants them: one family of samples.

Not for histograms: see `distribution`.
"""

from collections.abc import Iterable
from typing import TypeAlias

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family

from service.observability.metrics import Metric

Samples: TypeAlias = Iterable[tuple[tuple[str, ...], float]]  # (label values, value)


def sampled_family(metric: Metric, samples: Samples) -> Family:
    """A total, if that is what the metric's name says; else a level."""
    is_total = metric.name.endswith("_total")
    kind = CounterMetricFamily if is_total else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family
