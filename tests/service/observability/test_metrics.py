"""The names of metrics keep to the rules that dashboards and linters rely on."""

from service.observability import metrics
from service.observability.metrics import Label, Metric

ALL = [each for each in vars(metrics).values() if isinstance(each, Metric)]


def test_every_name_is_used_once() -> None:
    """No two metrics share a name, so that a query can only mean one thing."""
    names = [metric.name for metric in ALL]

    assert sorted(names) == sorted(set(names))


def test_every_metric_carries_the_prefix() -> None:
    """All metrics of the service are found under one prefix."""
    assert [metric.name for metric in ALL if not metric.name.startswith("sidelook_")] == []


def test_every_metric_explains_itself() -> None:
    """The help of a metric is a sentence, not a repetition of its name."""
    assert [metric.name for metric in ALL if not metric.help.endswith(".")] == []


def test_labels_are_the_agreed_ones() -> None:
    """There are seven labels, and none of them could hold a key."""
    agreed = {"dimension", "outcome", "result", "reason", "kind", "origin", "channel_state"}

    assert {label.value for label in Label} == agreed
