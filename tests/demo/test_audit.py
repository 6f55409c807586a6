"""The judgement over a run: it must notice whatever is wrong."""

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from demo.audit import audit
from demo.dimension import DIMENSIONS
from demo.flights import flights as all_flights
from demo.totals import Totals, count_totals
from tests.demo.enriched_flights import enriched_flights

METRICS = "".join(
    f'sidelook_backend_queries_total{{dimension="{dimension.name}",result="ok"}} 7\n'
    f'sidelook_lookups_total{{dimension="{dimension.name}",outcome="hit"}} 100\n'
    for dimension in DIMENSIONS
)


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    """The first thousand flights."""
    return all_flights().slice(0, 1_000)


@pytest.fixture(scope="module")
def enriched(flights: pa.Table) -> pa.Table:
    """The same, enriched as they should be."""
    return enriched_flights(flights)


@pytest.fixture(scope="module")
def totals(enriched: pa.Table) -> list[Totals]:
    """The figures of a run that went well."""
    return [
        count_totals(dimension, enriched, queries=7, metrics=METRICS) for dimension in DIMENSIONS
    ]


def test_right_output_has_no_faults(
    flights: pa.Table, enriched: pa.Table, totals: list[Totals]
) -> None:
    """A run where everything agrees is not complained about."""
    assert audit(flights, enriched, totals) == []


@pytest.mark.parametrize("rows", [999, 1_001])
def test_lost_or_repeated_flight_is_noticed(
    flights: pa.Table, enriched: pa.Table, totals: list[Totals], rows: int
) -> None:
    """Each flight is there exactly once."""
    wrong = pa.concat_tables([enriched, enriched.slice(999)]).slice(0, rows)

    faults = audit(flights, wrong, totals)

    different = min(rows, 1_000)
    found = f"{rows} records of {different} flights"
    assert faults == [f"not each of 1000 flights exactly once, but {found}"]


def test_wrong_value_is_noticed(
    flights: pa.Table, enriched: pa.Table, totals: list[Totals]
) -> None:
    """A value of another row is a fault, even in a single record."""
    years = [1903, *enriched["plane_year"].to_pylist()[1:]]
    wrong = _with_column(enriched, "plane_year", pa.array(years, pa.int32()))

    faults = audit(flights, wrong, totals)

    assert faults == ["planes: the column plane_year differs from a plain join"]


def test_row_taken_for_missing_is_noticed(
    flights: pa.Table, enriched: pa.Table, totals: list[Totals]
) -> None:
    """A hit that is reported as missing is a fault, whatever stands in the columns."""
    status = [{"outcome": "missing"}] * enriched.num_rows
    wrong = _with_column(enriched, "airline_lookup", pa.array(status))

    faults = audit(flights, wrong, totals)

    assert faults == ["airlines: outcomes differ from a plain join"]


def test_changed_flight_is_noticed(
    flights: pa.Table, enriched: pa.Table, totals: list[Totals]
) -> None:
    """The flights' own columns come out as they went in."""
    wrong = _with_column(enriched, "distance", pc.add(enriched["distance"], 1))

    faults = audit(flights, wrong, totals)

    assert faults == ["the column distance of the flights was changed"]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"outcomes": {"hit": 999}}, "1000 records, but 999 answers {'hit': 999}"),
        ({"outcomes": {"hit": 1_000, "error": 1}}, "1000 records, but 1000 answers"),
        ({"sidecar_outcomes": {"hit": 1_001}}, "the sidecar counts 1001 keys hit, but the join"),
        ({"queries": 8}, "PostgreSQL executed 8 queries, the sidecar counts 7"),
    ],
)
def test_totals_that_disagree_are_noticed(
    flights: pa.Table,
    enriched: pa.Table,
    totals: list[Totals],
    change: dict[str, object],
    fault: str,
) -> None:
    """The counts of output, sidecar and PostgreSQL have to fit each other."""
    airlines = replace(totals[2], **change)  # type: ignore[arg-type]  # fields by name

    faults = audit(flights, enriched, [*totals[:2], airlines, totals[3]])

    assert len(faults) == 1
    assert faults[0].startswith(f"airlines: {fault}")


def test_too_many_queries_are_noticed(
    flights: pa.Table, enriched: pa.Table, totals: list[Totals]
) -> None:
    """The four dimensions together take fewer than 2,000 queries."""
    many = [replace(figures, queries=500, sidecar_queries=500) for figures in totals]

    assert audit(flights, enriched, many) == ["2000 queries, which is not below 2000"]


def _with_column(table: pa.Table, name: str, column: pa.Array | pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, column)
