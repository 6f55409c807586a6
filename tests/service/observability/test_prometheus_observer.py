"""What the engine reports arrives in the exposition, under the agreed names and labels."""

from service.engine.observer import QueryStatus
from service.observability.prometheus_observer import PrometheusObserver


def test_queries_are_counted_by_result() -> None:
    """Every query counts once, whatever its result, and with its dimension."""
    observer = PrometheusObserver()

    observer.query_ended("airports", keys=3, seconds=0.01, result=QueryStatus.OK)
    observer.query_ended("airports", keys=3, seconds=0.01, result=QueryStatus.OK)
    observer.query_ended("airports", keys=3, seconds=2.0, result=QueryStatus.TIMEOUT)

    assert _samples(observer, "sidelook_backend_queries_total") == {
        ("airports", "ok"): 2.0,
        ("airports", "timeout"): 1.0,
    }


def test_query_sizes_and_durations_are_distributed() -> None:
    """The keys and the seconds of a query fall into histograms of its dimension."""
    observer = PrometheusObserver()

    observer.query_ended("airports", keys=40, seconds=0.5, result=QueryStatus.ERROR)

    assert _samples(observer, "sidelook_backend_batch_keys_sum") == {("airports",): 40.0}
    assert _samples(observer, "sidelook_backend_query_seconds_sum") == {("airports",): 0.5}


def test_lookups_are_distributed_by_duration() -> None:
    """The seconds of a lookup fall into a histogram of its dimension."""
    observer = PrometheusObserver()

    observer.lookup_ended("airports", seconds=0.0002)
    observer.lookup_ended("airports", seconds=30.0)

    assert _samples(observer, "sidelook_lookup_seconds_count") == {("airports",): 2.0}
    assert _buckets(observer, "sidelook_lookup_seconds")["0.00025"] == 1.0


def test_creation_times_are_not_exposed() -> None:
    """Only the agreed names come out: no `_created` series beside each counter."""
    observer = PrometheusObserver()
    observer.query_ended("airports", keys=1, seconds=0.1, result=QueryStatus.OK)

    names = {sample.name for family in observer.collect() for sample in family.samples}

    assert {name for name in names if name.endswith("_created")} == set()


def _samples(observer: PrometheusObserver, name: str) -> dict[tuple[str, ...], float]:
    samples = [sample for family in observer.collect() for sample in family.samples]
    return {tuple(each.labels.values()): each.value for each in samples if each.name == name}


def _buckets(observer: PrometheusObserver, name: str) -> dict[str, float]:
    samples = [sample for family in observer.collect() for sample in family.samples]
    return {each.labels["le"]: each.value for each in samples if each.name == f"{name}_bucket"}
