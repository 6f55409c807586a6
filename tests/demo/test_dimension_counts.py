"""Reading a sidecar's metrics."""

from demo.totals import LOOKUPS, dimension_counts

METRICS = """\
# TYPE sidelook_lookups_total counter
sidelook_lookups_total{dimension="planes",outcome="hit"} 2.0
sidelook_lookups_total{outcome="missing",dimension="planes"} 1.0
sidelook_lookups_total{dimension="airports",outcome="hit"} 9.0
# TYPE sidelook_channels gauge
sidelook_channels{dimension="planes",channel_state="active"} 3.0
"""


def test_counts_are_of_one_metric_and_dimension() -> None:
    """By the label that is not the dimension's, wherever it stands."""
    assert dimension_counts(METRICS, "planes", LOOKUPS) == {"hit": 2, "missing": 1}
    assert dimension_counts(METRICS, "planes", "sidelook_channels") == {"active": 3}


def test_unknown_dimension_has_no_counts() -> None:
    """Nothing is said of what the metrics do not have."""
    assert dimension_counts(METRICS, "airlines", LOOKUPS) == {}
