"""What is counted comes out as the library's own histogram would tell it."""

from collections.abc import Iterable

from prometheus_client import Histogram
from prometheus_client.samples import Sample

from service.observability.metrics import LOOKUP_SECONDS
from service.observability.prometheus_observer import Distribution

BOUNDS = (0.5, 1.0, 2.5)
VALUES = (0.1, 0.5, 0.500001, 1.0, 2.5, 2.6, 100.0)


def test_values_are_told_as_by_the_library() -> None:
    """Names, labels, buckets, counts and sums are those of a `Histogram`."""
    metric = LOOKUP_SECONDS
    histogram = Histogram(metric.name, metric.help, metric.labels, buckets=BOUNDS, registry=None)
    distribution = Distribution(metric, BOUNDS)
    for dimension in ("airports", "planes"):
        for value in VALUES:
            histogram.labels(dimension).observe(value)
            distribution.observe(dimension, value)

    (expected,) = histogram.collect()
    found = distribution.family()

    samples = [each for each in expected.samples if not each.name.endswith("_created")]
    assert _values(found.samples) == _values(samples)
    assert (found.name, found.documentation, found.type) == (metric.name, metric.help, "histogram")


def test_what_was_not_observed_is_not_told() -> None:
    """Without a value there is no series, as with the library."""
    assert Distribution(LOOKUP_SECONDS, BOUNDS).family().samples == []


def _values(samples: Iterable[Sample]) -> dict[tuple[str, ...], float]:
    return {(each.name, *sorted(each.labels.values())): each.value for each in samples}
