"""Whether the demonstration did what it claims: every flight once, every value right.

Returns what is wrong, in words, and nothing if all is well.
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from demo.dimension import DIMENSIONS, Dimension
from demo.reference import FOUND, reference
from demo.totals import Totals

MAX_QUERIES = 2_000  # of all dimensions together


def audit(flights: pa.Table, enriched: pa.Table, totals: Iterable[Totals]) -> list[str]:
    """All faults of the output and of the totals; `enriched` is sorted by `flight_id`."""
    if not enriched["flight_id"].equals(flights["flight_id"]):
        different = pc.count_distinct(enriched["flight_id"]).as_py()
        found = f"{enriched.num_rows} records of {different} flights"
        return [f"not each of {flights.num_rows} flights exactly once, but {found}"]
    totals = list(totals)
    return [
        *_changed_columns(flights, enriched),
        *(fault for dimension in DIMENSIONS for fault in _wrong_answers(enriched, dimension)),
        *(fault for figures in totals for fault in _wrong_totals(figures)),
        *_too_many_queries(totals),
    ]


def _changed_columns(flights: pa.Table, enriched: pa.Table) -> Iterator[str]:
    for name in flights.column_names:
        if not enriched[name].equals(flights[name]):
            yield f"the column {name} of the flights was changed"


def _wrong_answers(enriched: pa.Table, dimension: Dimension) -> Iterator[str]:
    expected = reference(enriched, dimension)
    outcome = pc.struct_field(enriched[dimension.status_column], "outcome")
    is_missing = pc.equal(outcome, pa.scalar("missing"))
    if not is_missing.equals(pc.is_null(expected[FOUND])):
        yield f"{dimension.name}: outcomes differ from a plain join"
    for name in expected.column_names:
        if name != FOUND and not enriched[name].equals(expected[name]):
            yield f"{dimension.name}: the column {name} differs from a plain join"


def _wrong_totals(totals: Totals) -> Iterator[str]:
    name = totals.dimension
    answered = totals.hits + totals.fetched + totals.missing
    if totals.errors or answered != totals.records:
        yield f"{name}: {totals.records} records, but {answered} answers {totals.outcomes}"
    # Equal keys of a batch travel once: the sidecar sees fewer of each kind, but never more.
    for outcome, keys in totals.sidecar_outcomes.items():
        if keys > totals.outcomes.get(outcome, 0):
            yield (
                f"{name}: the sidecar counts {keys} keys {outcome}, but the join only"
                f" {totals.outcomes.get(outcome, 0)}; did somebody else look keys up meanwhile?"
            )
    if totals.queries != totals.sidecar_queries:
        yield (
            f"{name}: PostgreSQL executed {totals.queries} queries, "
            f"the sidecar counts {totals.sidecar_queries}"
        )


def _too_many_queries(totals: list[Totals]) -> Iterator[str]:
    queries = sum(figures.queries for figures in totals)
    if queries >= MAX_QUERIES:
        yield f"{queries} queries, which is not below {MAX_QUERIES}"
