"""What the default observer does: nothing, without complaint."""

from service.engine.observer import NullObserver, QueryStatus


def test_null_observer_listens_to_nothing() -> None:
    """Whatever happens, it keeps no trace of it."""
    observer = NullObserver()

    observer.query_ended("customers", keys=1, seconds=0.1, result=QueryStatus.OK)
    observer.lookup_ended("customers", seconds=0.1)

    assert vars(observer) == {}


def test_results_are_words_of_the_metrics() -> None:
    """The results are few and fixed, because each is a label's value."""
    assert list(QueryStatus) == ["ok", "error", "timeout", "cancelled"]
