"""Every form of join gives the rows of plain Spark joins over the same tables."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import connect
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its usual name

from spark_client import Sidecar
from spark_client.driver.options import How
from tests.end_to_end.sidecars import url_of
from tests.integration.sidecars import postgres_sidecar
from tools.processes.postgres_server import Database

JOINS: tuple[How, ...] = ("left", "inner", "semi", "anti")
Record = tuple[str | None, int | None]
Row = tuple[str, int, int | None]

# Any character that PostgreSQL stores.
characters = st.characters(exclude_characters="\x00", exclude_categories=["Cs"])
texts = st.sampled_from(["", "a", "A", "é", "e\u0301", "😀", " a"]) | st.text(
    characters, max_size=3
)
numbers = st.integers(0, 3) | st.sampled_from([-(2**63), 2**63 - 1])
records = st.lists(st.tuples(st.none() | texts, st.none() | numbers), max_size=25)
rows = st.lists(st.tuples(texts, numbers, st.none() | numbers), max_size=25)

_CREATE = "CREATE TABLE {0} (text text, number int8, value int8, place serial PRIMARY KEY)"
_FOLLOWING = {"cache": {"mode": "none"}}  # so that each example is looked up in its own rows


@pytest.fixture(scope="module")
def dims(database: Database, module_folder: Path) -> Iterator[Sidecar]:
    """Dimensions over `unique` (one row for a text and a number) and `several`."""
    for name in ("unique", "several"):
        database.execute(_CREATE.format(f"{name}_rows"))
    database.execute(
        "CREATE UNIQUE INDEX ON unique_rows (text, number)",
        "CREATE INDEX ON several_rows (number)",
    )
    columns = {"columns": ["value", "text"]}
    dimensions = {
        "pairs": {"table": "unique_rows", "key": ["text", "number"], "columns": ["value"]},
        "several": {"table": "several_rows", "key": ["number"], "match": "all", **columns},
    }
    following = {name: {**each, **_FOLLOWING} for name, each in dimensions.items()}
    sidecar = postgres_sidecar(module_folder, database.dsn(), following)
    with sidecar.running():
        yield Sidecar(url_of(sidecar))


def fill(database: Database, table: str, content: list[Row]) -> None:
    """Replace the rows of a table."""
    with connect(database.dsn(), autocommit=True) as admin, admin.cursor() as cursor:
        cursor.execute(f"TRUNCATE {table}".encode())
        cursor.executemany(
            f"INSERT INTO {table} (text, number, value) VALUES (%s, %s, %s)".encode(), content
        )


def counted(frame: DataFrame) -> Counter[Any]:
    """The rows, in any order."""
    return Counter(tuple(row) for row in frame.collect())


@pytest.mark.full
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(given_records=records, unique=rows, several=rows)
def test_each_join_equals_a_plain_one(
    spark_session: SparkSession,
    database: Database,
    dims: Sidecar,
    given_records: list[Record],
    unique: list[Row],
    several: list[Row],
) -> None:
    """Duplicates, NULLs and any characters; single lookups and several in one pass."""
    distinct = [*{row[:2]: row for row in unique}.values()]
    fill(database, "unique_rows", distinct)
    fill(database, "several_rows", several)
    events = spark_session.createDataFrame(
        [(*record, place) for place, record in enumerate(given_records)],
        "t string, n bigint, place int",
    ).coalesce(2)
    schema = "text string, number bigint, value bigint"
    pairs = spark_session.createDataFrame(distinct, schema)
    many = spark_session.createDataFrame(several, schema)
    on_pair = (F.col("t") == F.col("text")) & (F.col("n") == F.col("number"))
    on_number = F.col("n") == F.col("number")
    own = ["t", "n", "place"]

    for how in JOINS:
        joined = dims.lookup_join("pairs", on={"t": "text", "n": "number"}, how=how)
        plain = events.join(pairs, on_pair, how)
        expected = plain if how in {"semi", "anti"} else plain.select(*own, "value")
        assert counted(events.transform(joined)) == counted(expected), how
    for how in JOINS[:2]:
        joined = dims.lookup_join("several", on={"n": "number"}, how=how, expand=True)
        plain = events.join(many, on_number, how).select(*own, "value", "text")
        assert counted(events.transform(joined)) == counted(plain), how

    first = events.join(pairs, on_pair, "left").select(*own, F.col("value").alias("p_value"))
    both = first.join(many, on_number, "left").select(*first.columns, "value", "text")
    later = both.join(
        many.select(F.col("number").alias("key")).distinct(),
        F.col("p_value") == F.col("key"),
        "anti",
    )
    in_one_pass = dims.lookup_joins(
        [
            dims.lookup_join("pairs", on={"t": "text", "n": "number"}, prefix="p_"),
            dims.lookup_join("several", on={"n": "number"}, expand=True),
            dims.lookup_join("several", on={"p_value": "number"}, how="anti", columns=[]),
        ],
        mode="unordered",
    )
    assert counted(events.transform(in_one_pass)) == counted(later)
