"""Counting what the output, the sidecar and PostgreSQL say."""

import pyarrow as pa

from demo.dimension import PLANES
from demo.totals import Totals, count_totals

METRICS = """\
# TYPE sidelook_lookups_total counter
sidelook_lookups_total{dimension="planes",outcome="hit"} 2.0
sidelook_lookups_total{dimension="planes",outcome="missing"} 1.0
sidelook_lookups_total{dimension="airports",outcome="hit"} 9.0
# TYPE sidelook_backend_queries_total counter
sidelook_backend_queries_total{dimension="planes",result="ok"} 3.0
sidelook_backend_queries_total{dimension="planes",result="timeout"} 1.0
"""


def test_totals_come_from_all_three() -> None:
    """Records are counted in the output, keys by the sidecar, queries by both ends of them."""
    enriched = _enriched({"a": "hit", "b": "stale", "c": "fetched", "d": "missing", "e": "error"})

    totals = count_totals(PLANES, enriched, queries=4, metrics=METRICS)

    assert totals == Totals(
        dimension="planes",
        records=5,
        with_key=5,
        outcomes={"hit": 1, "stale": 1, "fetched": 1, "missing": 1, "error": 1},
        queries=4,
        sidecar_outcomes={"hit": 2, "missing": 1},
        sidecar_queries=4,
    )
    assert (totals.hits, totals.fetched, totals.missing, totals.errors) == (2, 1, 1, 1)


def test_record_without_key_needs_no_query() -> None:
    """A flight with an unknown tail number would not be looked up by anybody."""
    enriched = _enriched({"a": "hit", None: "missing"})

    assert count_totals(PLANES, enriched, queries=0, metrics="").with_key == 1


def _enriched(outcomes: dict[str | None, str]) -> pa.Table:
    status = [{"outcome": outcome} for outcome in outcomes.values()]
    return pa.table({"tailnum": list(outcomes), "plane_lookup": status})
