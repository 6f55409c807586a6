"""Counts of the demonstration: output, sidecar and PostgreSQL."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from prometheus_client.parser import text_string_to_metric_families

from demo.dimension import Dimension

LOOKUPS = "sidelook_lookups_total"
SHARED = "sidelook_shared_lookups_total"
QUERIES = "sidelook_backend_queries_total"
HIT = ("hit", "stale")  # answered from the cache
FAILED = ("timeout", "error")


def dimension_counts(metrics: str, dimension: str, metric: str) -> dict[str, int]:
    """Return {other label, "" without one: value} of one metric of one dimension."""
    return {
        next((value for name, value in sample.labels.items() if name != "dimension"), ""): int(
            sample.value
        )
        for family in text_string_to_metric_families(metrics)
        for sample in family.samples
        if sample.name == metric and sample.labels.get("dimension") == dimension
    }


@dataclass(frozen=True, slots=True)
class Totals:
    """Figures of one dimension."""

    dimension: str
    records: int
    with_key: int  # records without a null in the key; one query each without Sidelook
    outcomes: dict[str, int]  # of records
    queries: int  # executed lookups in PostgreSQL's log
    sidecar_outcomes: dict[str, int]  # of keys: equal keys of a batch are sent once
    sidecar_queries: int
    shared_keys: int  # that Spark's workers looked up in shared memory

    def records_with(self, *outcomes: str) -> int:
        """Return the number of records with one of the outcomes."""
        return sum(self.outcomes.get(outcome, 0) for outcome in outcomes)


def count_totals(dimension: Dimension, enriched: pa.Table, *, queries: int, metrics: str) -> Totals:
    """Return the figures of one dimension from the output and the sidecar's metrics."""
    status = enriched[dimension.status_column]
    outcomes = pc.value_counts(pc.struct_field(status, "outcome"))
    return Totals(
        dimension=dimension.name,
        records=enriched.num_rows,
        with_key=enriched.select(list(dimension.on)).drop_null().num_rows,
        outcomes={row["values"].as_py(): row["counts"].as_py() for row in outcomes},
        queries=queries,
        sidecar_outcomes=dimension_counts(metrics, dimension.name, LOOKUPS),
        sidecar_queries=sum(dimension_counts(metrics, dimension.name, QUERIES).values()),
        shared_keys=sum(dimension_counts(metrics, dimension.name, SHARED).values()),
    )
