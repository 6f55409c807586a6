"""Audit of the demonstration: every flight once, every value equal to a plain join."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from demo.dimension import DIMENSIONS, Dimension
from demo.flights import NULL, data_package
from demo.totals import FAILED, HIT, Totals

ARROW_TYPES = {
    "text": pa.string(),
    "integer": pa.int32(),
    "double precision": pa.float64(),
    "timestamp with time zone": pa.timestamp("us", tz="UTC"),
}
FOUND = "found"  # column of the reference: distinguishes a row of nulls from no row
MAX_QUERIES = 2_000  # of all dimensions together


def reference(flights: pa.Table, dimension: Dimension) -> pa.Table:
    """Return the prefixed columns of the dimension and FOUND for each flight, in order."""
    keys = flights.select(["flight_id", *dimension.on])
    joined = keys.join(_rows(dimension), keys=list(dimension.on), join_type="left outer")
    return joined.sort_by("flight_id").drop_columns(["flight_id", *dimension.on])


def _rows(dimension: Dimension) -> pa.Table:
    options = csv.ConvertOptions(
        column_types={name: ARROW_TYPES[kind] for name, kind in dimension.types.items()},
        null_values=[NULL],
        strings_can_be_null=True,
    )
    rows = csv.read_csv(data_package() / f"{dimension.name}.csv", convert_options=options)
    found = pa.chunked_array([pa.array([True] * rows.num_rows)])
    return pa.Table.from_arrays(
        [*(rows[name] for name in (*dimension.key, *dimension.columns)), found],
        names=[*dimension.on, *(f"{dimension.prefix}{name}" for name in dimension.columns), FOUND],
    )


def audit(flights: pa.Table, enriched: pa.Table, totals: Iterable[Totals]) -> list[str]:
    """Return all faults of output and totals; `enriched` is sorted by `flight_id`."""
    if not enriched["flight_id"].equals(flights["flight_id"]):
        different = pc.count_distinct(enriched["flight_id"]).as_py()
        found = f"{enriched.num_rows} records of {different} flights"
        return [f"not each of {flights.num_rows} flights exactly once, but {found}"]
    totals = list(totals)
    queries = sum(each.queries for each in totals)
    return [
        *_changed_columns(flights, enriched),
        *(fault for dimension in DIMENSIONS for fault in _wrong_values(enriched, dimension)),
        *(fault for each in totals for fault in _wrong_totals(each)),
        *([f"{queries} queries, not below {MAX_QUERIES}"] if queries >= MAX_QUERIES else []),
    ]


def _changed_columns(flights: pa.Table, enriched: pa.Table) -> Iterator[str]:
    for name in flights.column_names:
        if not enriched[name].equals(flights[name]):
            yield f"the column {name} of the flights was changed"


def _wrong_values(enriched: pa.Table, dimension: Dimension) -> Iterator[str]:
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
    answered = totals.records_with(*HIT, "fetched", "missing")
    if totals.records_with(*FAILED) or answered != totals.records:
        yield f"{name}: {totals.records} records, but {answered} answers {totals.outcomes}"
    # Equal keys of a batch are sent once, so the sidecar may count fewer keys but never more.
    for outcome, keys in totals.sidecar_outcomes.items():
        if keys > totals.outcomes.get(outcome, 0):
            yield (
                f"{name}: the sidecar counts {keys} keys {outcome}, but the join only"
                f" {totals.outcomes.get(outcome, 0)}; did another client use the sidecar?"
            )
    if totals.queries != totals.sidecar_queries:
        yield (
            f"{name}: PostgreSQL executed {totals.queries} queries, "
            f"the sidecar counts {totals.sidecar_queries}"
        )
