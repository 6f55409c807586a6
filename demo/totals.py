"""Counts of the demonstration: output, sidecar and PostgreSQL."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from prometheus_client.parser import text_string_to_metric_families

from demo.dimension import Dimension

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


HIT = ("hit", "stale")
FAILED = ("timeout", "error")


@dataclass(frozen=True, slots=True)
class Totals:
    """One dimension's figures; the first five are of the output's records."""

    dimension: str
    records: int
    with_key: int  # without a NULL in the key: each would be a query if each record asked alone
    outcomes: dict[str, int]
    queries: int  # executed lookups, in PostgreSQL's own log
    sidecar_outcomes: dict[str, int]  # of keys: equal keys of a batch travel once
    sidecar_queries: int

    @property
    def hits(self) -> int:
        """Records answered from the sidecar's memory."""
        return sum(self.outcomes.get(outcome, 0) for outcome in HIT)

    @property
    def fetched(self) -> int:
        """Records answered by a query."""
        return self.outcomes.get("fetched", 0)

    @property
    def missing(self) -> int:
        """Records that the dimension has no row for."""
        return self.outcomes.get("missing", 0)

    @property
    def errors(self) -> int:
        """Records without an answer."""
        return sum(self.outcomes.get(outcome, 0) for outcome in FAILED)


def count_totals(dimension: Dimension, enriched: pa.Table, *, queries: int, metrics: str) -> Totals:
    """All figures of one dimension, from the output and from what the sidecar exposes."""
    with_key = enriched.select(list(dimension.on)).drop_null().num_rows
    status = enriched[dimension.status_column]
    return Totals(
        dimension=dimension.name,
        records=enriched.num_rows,
        with_key=with_key,
        outcomes=_count(pc.struct_field(status, "outcome")),
        queries=queries,
        sidecar_outcomes=dimension_counts(metrics, dimension.name, LOOKUPS),
        sidecar_queries=sum(dimension_counts(metrics, dimension.name, QUERIES).values()),
    )


def _count(outcomes: pa.ChunkedArray) -> dict[str, int]:
    counted = pc.value_counts(outcomes)
    return {row["values"].as_py(): row["counts"].as_py() for row in counted}
