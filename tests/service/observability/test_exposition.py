"""The text is what a Prometheus scrape expects, and holds this application's metrics only."""

from prometheus_client.parser import text_string_to_metric_families

from lookup_core.settings import DimensionSettings
from lookup_core.statistics import no_statistics
from service.engine.observer import QueryStatus
from service.observability import metrics
from service.observability.collector import CertificateCollector, Collector
from service.observability.metrics import Metric
from service.observability.prometheus_observer import Exposition, PrometheusObserver
from service.resources.memory_guard import MemoryStatistics, PressureLevel


def test_every_declared_metric_is_exposed() -> None:
    """Each constant of `metrics` has a family in the text, and there is no other family."""
    declared = {each.name for each in vars(metrics).values() if isinstance(each, Metric)}

    families = list(text_string_to_metric_families(_exposition().render().decode()))

    told = {f"{each.name}_total" if each.type == "counter" else each.name for each in families}
    assert told == declared


def test_labels_are_the_declared_ones() -> None:
    """No sample has a label that is not agreed; `le` belongs to histograms."""
    allowed = {label.value for label in metrics.Label} | {"le"}

    families = text_string_to_metric_families(_exposition().render().decode())

    labels = {label for each in families for sample in each.samples for label in sample.labels}
    assert labels <= allowed


def test_two_services_do_not_mix() -> None:
    """Two expositions in one process are independent of each other."""
    observer = PrometheusObserver()
    first, second = Exposition([observer]), Exposition([PrometheusObserver()])

    observer.lookup_ended("airports", seconds=0.1)

    assert b'dimension="airports"' in first.render()
    assert b'dimension="airports"' not in second.render()


def _exposition() -> Exposition:
    observer = PrometheusObserver()
    observer.query_ended("airports", keys=1, seconds=0.1, result=QueryStatus.OK)
    observer.lookup_ended("airports", seconds=0.1)
    collector = Collector(
        dimensions=lambda: {"airports": no_statistics(DimensionSettings("airports"))},
        refreshes=dict,
        channels=list,
        watermarks_ms=dict,
        undescribed=dict,
        uses_index=dict,
        lag_s=lambda: 0.0,
        memory=lambda: MemoryStatistics(0, 0.0, PressureLevel.NONE),
        version="1.2.3",
    )
    return Exposition([observer, collector, CertificateCollector(None)])
