"""Audit of the demonstration: every wrong value, lost row and wrong count is found."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from demo.audit import FOUND, audit, reference
from demo.dimension import AIRLINES, DIMENSIONS, PLANES, WEATHER
from demo.flights import flights as all_flights
from demo.postgres import QueryLog
from demo.totals import LOOKUPS, Totals, count_totals, dimension_counts

METRICS = "".join(
    f'sidelook_backend_queries_total{{dimension="{dimension.name}",result="ok"}} 5\n'
    f'sidelook_backend_queries_total{{dimension="{dimension.name}",result="timeout"}} 2\n'
    f'sidelook_lookups_total{{outcome="hit",dimension="{dimension.name}"}} 100\n'
    f'sidelook_shared_lookups_total{{dimension="{dimension.name}"}} 3\n'
    for dimension in DIMENSIONS
)
LOOKUP = """\
user=sidelook application=sidelook LOG:  execute __asyncpg_stmt_3__: SELECT k.ordinal, t."year"
	FROM unnest($1::text[]) WITH ORDINALITY AS k(k1, ordinal)
	JOIN "public"."planes" AS t ON t."tailnum" = k.k1
"""
OTHERS = """\
user=sidelook application=sidelook LOG:  execute __asyncpg_stmt_1__: SELECT 'planes'::regclass
user=postgres application=psql LOG:  statement: SELECT * FROM planes WITH ORDINALITY
user=sidelook application=sidelook ERROR:  canceling statement due to user request
user=sidelook application=sidelook STATEMENT:  SELECT 1 FROM planes -- WITH ORDINALITY
user=sidelook application=sidelook LOG:  statement: EXPLAIN SELECT 1 FROM planes -- WITH ORDINALITY
"""


@pytest.fixture(scope="module")
def every_flight() -> pa.Table:
    """Return all flights of the year."""
    return all_flights()


@dataclass(frozen=True)
class RightRun:
    """A run in which everything agrees."""

    flights: pa.Table
    enriched: pa.Table
    totals: list[Totals]


@pytest.fixture(scope="module")
def right(every_flight: pa.Table) -> RightRun:
    """Return a run of the first thousand flights."""
    flights = enriched = every_flight.slice(0, 1_000)
    for dimension in DIMENSIONS:
        answers = reference(flights, dimension)
        outcome = pc.if_else(pc.is_valid(answers[FOUND]), "hit", "missing").combine_chunks()
        status = pa.StructArray.from_arrays([outcome], names=["outcome"])
        for name in answers.column_names[:-1]:
            enriched = enriched.append_column(name, answers[name])
        enriched = enriched.append_column(dimension.status_column, status)
    totals = [count_totals(each, enriched, queries=7, metrics=METRICS) for each in DIMENSIONS]
    return RightRun(flights, enriched, totals)


def test_right_output_has_no_faults(right: RightRun) -> None:
    """A right run has no faults; 2,000 queries of the four dimensions are one."""
    many = [replace(each, queries=500, sidecar_queries=500) for each in right.totals]

    assert audit(right.flights, right.enriched, right.totals) == []
    assert audit(right.flights, right.enriched, many) == ["2000 queries, not below 2000"]


@pytest.mark.parametrize("rows", [999, 1_001])
def test_lost_or_repeated_flight_is_found(right: RightRun, rows: int) -> None:
    """A lost or repeated flight is a fault."""
    wrong = pa.concat_tables([right.enriched, right.enriched.slice(999)]).slice(0, rows)

    records = f"{rows} records of {min(rows, 1_000)} flights"
    assert audit(right.flights, wrong, right.totals) == [
        f"not each of 1000 flights exactly once, but {records}"
    ]


def test_wrong_output_is_found(right: RightRun) -> None:
    """A wrong value, a wrong outcome, and a changed column of a flight are faults."""
    enriched = right.enriched
    years = pa.array([1903, *enriched["plane_year"].to_pylist()[1:]], pa.int32())
    missing = pa.array([{"outcome": "missing"}] * enriched.num_rows)
    distance = pc.add(enriched["distance"], 1)
    wrong = {
        "plane_year": (years, "planes: the column plane_year differs from a plain join"),
        "airline_lookup": (missing, "airlines: outcomes differ from a plain join"),
        "distance": (distance, "the column distance of the flights was changed"),
    }

    for name, (column, fault) in wrong.items():
        other = enriched.set_column(enriched.column_names.index(name), name, column)
        assert audit(right.flights, other, right.totals) == [fault]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"outcomes": {"hit": 999}}, "1000 records, but 999 answers {'hit': 999}"),
        ({"outcomes": {"hit": 1_000, "error": 1}}, "1000 records, but 1000 answers"),
        ({"sidecar_outcomes": {"hit": 1_001}}, "the sidecar counts 1001 keys hit, but the join"),
        ({"queries": 8}, "PostgreSQL executed 8 queries, the sidecar counts 7"),
    ],
)
def test_disagreeing_counts_are_found(
    right: RightRun, change: dict[str, object], fault: str
) -> None:
    """Different counts of output, sidecar and PostgreSQL are a fault."""
    planes, airports, airlines, weather = right.totals
    wrong = replace(airlines, **change)  # type: ignore[arg-type]  # fields by name

    (found,) = audit(right.flights, right.enriched, [planes, airports, wrong, weather])

    assert found.startswith(f"airlines: {fault}")


def test_totals_come_from_three_sources() -> None:
    """Records are counted in the output, keys by the sidecar, queries by both ends."""
    outcomes = {"a": "hit", "b": "stale", "c": "fetched", "d": "missing", None: "error"}
    status = [{"outcome": outcome} for outcome in outcomes.values()]
    enriched = pa.table({"tailnum": list(outcomes), "plane_lookup": status})

    totals = count_totals(PLANES, enriched, queries=4, metrics=METRICS)

    assert totals == Totals(
        dimension="planes",
        records=5,
        with_key=4,
        outcomes={"hit": 1, "stale": 1, "fetched": 1, "missing": 1, "error": 1},
        queries=4,
        sidecar_outcomes={"hit": 100},
        sidecar_queries=7,
        shared_keys=3,
    )
    assert totals.records_with("hit", "stale", "error") == 3
    assert dimension_counts(METRICS, "unknown", LOOKUPS) == {}


def test_only_executed_lookups_count(tmp_path: Path) -> None:
    """Catalog queries, other users, failures and earlier runs in the log do not count."""
    file = tmp_path / "log"
    file.write_text(LOOKUP)
    log = QueryLog(file)

    file.write_text(LOOKUP + LOOKUP + OTHERS + LOOKUP)

    assert log.count("sidelook", ["planes", "weather"]) == {"planes": 2, "weather": 0}


def test_reference_is_a_plain_join() -> None:
    """Each flight gets its own answer, for repeated, unknown and missing keys."""
    tails = ["N10156", None, "N10156", "no such tail", "N102UW"]
    planes = reference(pa.table({"flight_id": range(5), "tailnum": tails}), PLANES)
    airlines = reference(pa.table({"flight_id": [0], "carrier": ["UA"]}), AIRLINES)
    hour = datetime(2013, 1, 1, 6, tzinfo=UTC)
    hours = pa.array([hour, hour.replace(year=1999), hour], pa.timestamp("us", "UTC"))
    origins = pa.array(["EWR", "EWR", "BOS"])
    weather = reference(
        pa.table({"flight_id": range(3), "origin": origins, "time_hour": hours}), WEATHER
    )

    assert planes["plane_model"].to_pylist() == ["EMB-145XR", None, "EMB-145XR", None, "A320-214"]
    assert planes["found"].to_pylist() == [True, None, True, None, True]
    assert airlines.to_pydict() == {"airline_name": ["United Air Lines Inc."], "found": [True]}
    assert weather["weather_temp"].to_pylist() == [39.02, None, None]


def test_flights_are_complete_and_ordered(every_flight: pa.Table) -> None:
    """All 336,776 flights are numbered in event order; an unknown tail number is NULL."""
    event_time = every_flight["event_time"].combine_chunks().cast(pa.int64())

    assert every_flight["flight_id"].to_pylist() == list(range(336_776))
    assert pc.min(pc.pairwise_diff(event_time)).as_py() >= 0
    assert every_flight["tailnum"].null_count == 2_512
