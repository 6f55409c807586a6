"""What a sidecar's metrics tell of one dimension.

Reading only; what the counts mean is for those who ask.
"""

from prometheus_client.parser import text_string_to_metric_families

LOOKUPS = "sidelook_lookups_total"
QUERIES = "sidelook_backend_queries_total"


def dimension_counts(metrics: str, dimension: str, metric: str) -> dict[str, int]:
    """The samples of one metric of one dimension, by what its other label says."""
    return {
        _other_label(sample.labels): int(sample.value)
        for family in text_string_to_metric_families(metrics)
        for sample in family.samples
        if sample.name == metric and sample.labels.get("dimension") == dimension
    }


def _other_label(labels: dict[str, str]) -> str:
    return next(value for name, value in labels.items() if name != "dimension")
