"""Metrics: the samples, names and labels that Prometheus scrapes."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from prometheus_client import Histogram
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from service.engine.observer import QueryStatus
from service.observability import metrics
from service.observability.metrics import LOOKUP_SECONDS, Label, Metric
from service.observability.prometheus_observer import Distribution, PrometheusObserver, exposition
from tests.service.observability.sidecar_statistics import busy_exposition, collector

EXPOSITION = Path(__file__).with_name("exposition.txt")
DECLARED = [each for each in vars(metrics).values() if isinstance(each, Metric)]
BOUNDS = (0.5, 1.0, 2.5)
VALUES = (0.1, 0.5, 0.500001, 1.0, 2.5, 2.6, 100.0)


def test_exposition_has_these_samples() -> None:
    """All totals and levels are exposed; an unknown value has no sample instead of a zero.

    Every outcome, reason and result has a sample from the start, so that a rate sees its first
    step. Buckets are left out here.
    """
    lines = busy_exposition().decode().splitlines()

    samples = [line for line in lines if not line.startswith("#") and "_bucket{" not in line]
    assert samples == EXPOSITION.read_text().splitlines()


def test_declared_metrics_are_exposed() -> None:
    """Each declared metric has a family of its own kind, with its help and its labels."""
    families = list(text_string_to_metric_families(busy_exposition().decode()))

    found = {
        f"{each.name}_total" if each.type == "counter" else each.name: each for each in families
    }
    assert sorted(found) == sorted(metric.name for metric in DECLARED)
    for metric in DECLARED:
        family = found[metric.name]
        assert family.documentation == metric.help
        assert (family.type == "counter") == metric.name.endswith("_total")
        assert all(set(each.labels) - {"le"} == set(metric.labels) for each in family.samples)


def test_names_and_labels_are_the_agreed_ones() -> None:
    """Each name has the prefix, each help is a sentence, and no label could hold a key."""
    agreed = {"dimension", "outcome", "result", "reason", "kind", "origin", "channel_state"}

    assert [each.name for each in DECLARED if not each.name.startswith("sidelook_")] == []
    assert [each.name for each in DECLARED if not each.help.endswith(".")] == []
    assert {label.value for label in Label} == agreed


def test_missing_certificate_has_no_samples() -> None:
    """Without TLS a zero would look like an expired certificate."""
    text = exposition(replace(collector(), certificate=None)).decode()

    assert [line for line in text.splitlines() if line.startswith("sidelook_tls_")] == []


def test_distribution_is_a_histogram() -> None:
    """Buckets, counts and sums are those of the library's own histogram."""
    histogram = Histogram(
        LOOKUP_SECONDS.name,
        LOOKUP_SECONDS.help,
        LOOKUP_SECONDS.labels,
        buckets=BOUNDS,
        registry=None,
    )
    distribution = Distribution(LOOKUP_SECONDS, BOUNDS)
    assert distribution.family().samples == []
    for dimension in ("airports", "planes"):
        for value in VALUES:
            histogram.labels(dimension).observe(value)
            distribution.observe(dimension, value)

    (expected,) = histogram.collect()
    found = distribution.family()

    samples = [each for each in expected.samples if not each.name.endswith("_created")]
    assert _values(found.samples) == _values(samples)
    assert (found.name, found.documentation, found.type) == (
        LOOKUP_SECONDS.name,
        LOOKUP_SECONDS.help,
        "histogram",
    )


def test_buckets_separate_hits_from_queries() -> None:
    """A hit takes microseconds, a query milliseconds and a timeout seconds."""
    observer = PrometheusObserver()

    observer.lookup_ended("airports", seconds=0.0002)
    observer.query_ended("airports", keys=40, seconds=0.02, result=QueryStatus.OK)

    lines = exposition(observer).decode().splitlines()
    first = {line.split("{")[0]: line for line in reversed(lines) if line.endswith(" 1.0")}
    assert 'le="0.00025"' in first["sidelook_lookup_seconds_bucket"]
    assert 'le="0.025"' in first["sidelook_backend_query_seconds_bucket"]
    assert 'le="50.0"' in first["sidelook_backend_batch_keys_bucket"]


def _values(samples: Iterable[Sample]) -> dict[tuple[str, ...], float]:
    return {(each.name, *sorted(each.labels.values())): each.value for each in samples}
