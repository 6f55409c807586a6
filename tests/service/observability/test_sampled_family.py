"""A metric's name says of which kind its family is."""

from service.observability.collector import sampled_family
from service.observability.metrics import BUILD_INFO, RETRIES


def test_totals_become_counters() -> None:
    """A name that ends so is a counter's, and each sample carries it."""
    family = sampled_family(RETRIES, [(("planes",), 3)])

    told = [(each.name, each.labels, each.value) for each in family.samples]
    assert (family.type, family.documentation) == ("counter", RETRIES.help)
    assert told == [("sidelook_retries_total", {"dimension": "planes"}, 3)]


def test_all_others_become_gauges() -> None:
    """A level is a gauge."""
    family = sampled_family(BUILD_INFO, [(("1.2.3",), 1)])

    told = [(each.name, each.labels, each.value) for each in family.samples]
    assert (family.type, told) == ("gauge", [("sidelook_build_info", {"kind": "1.2.3"}, 1)])
