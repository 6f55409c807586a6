"""Keys of joins in Spark: fields of structs, expressions, and records that are multiplied."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its usual name

from lookup_core.dimension_schema import VersionColumns
from lookup_core.errors import ErrorCode, InvalidRequest
from lookup_core.protocol import frames
from spark_client import Sidecar
from spark_client.driver.input_columns import On
from spark_client.driver.lookup_functions import HAS_ARROW_FUNCTIONS
from spark_client.testing.fake_server import MemoryServer
from spark_client.testing.served_dimension import ServedDimension
from tests.spark_client.builders import ALL_DIMENSIONS, HISTORY, received
from tests.spark_client.memory_transport import ReachableSidecar

pytestmark = pytest.mark.full

PEOPLE = pa.table({"email": ["ann@x", "bob@x"], "name": ["Ann", "Bob"], "boss": ["BOB@X", None]})
INVOICES = pa.table(
    {
        "id": pa.array([3, 1, 3], pa.int64()),
        "number": pa.array([7, 8, 9], pa.uint16()),
        "text": ["a", None, "b"],
    }
)


@pytest.fixture
def fake() -> ReachableSidecar:
    """The sidecar in memory."""
    people = ServedDimension(PEOPLE, ("email",))
    dimensions = {
        **ALL_DIMENSIONS,
        "people": people,
        "moments": ServedDimension(HISTORY, ("id",), versions=VersionColumns("since")),
        "invoices": ServedDimension(
            INVOICES, ("id",), has_all_rows=True, default={"number": [0], "text": ["none"]}
        ),
        "arrays": ServedDimension(pa.table({"id": [1], "tags": [["a", "b"]]}), ("id",)),
    }
    return ReachableSidecar(dimensions)


@pytest.fixture
def sidecar(fake: ReachableSidecar, tmp_path: Path) -> Iterator[Sidecar]:
    """A sidecar that the driver and the workers reach."""
    with MemoryServer(fake).at(tmp_path / "s.sock") as url:
        yield Sidecar(url, connect_timeout=20.0)


@pytest.fixture
def orders(spark_session: SparkSession) -> DataFrame:
    """Three orders with structs, in one partition."""
    return spark_session.sql(
        """SELECT n, email,
                  IF(n = 2, NULL, struct(struct(id, at) AS customer)) AS `order`,
                  id AS `order.id`, n AS _lookup_key_0
           FROM VALUES (0, 'ANN@x', 3L, timestamp_ntz'1970-01-01'),
                       (1, 'bob@X', 9L, timestamp_ntz'2024-01-01'),
                       (2, NULL, 1L, timestamp_ntz'2024-01-01') AS t(n, email, id, at)"""
    ).coalesce(1)


def added(enriched: DataFrame, *names: str) -> list[tuple[Any, ...]]:
    """The values of these columns, in the order of the records."""
    return [tuple(row) for row in enriched.select(*names).collect()]


def refusal(records: DataFrame, join: Any) -> InvalidRequest:  # noqa: ANN401 -- any transformation
    """The error on the driver."""
    with pytest.raises(InvalidRequest) as caught:
        records.transform(join)
    return caught.value


def test_fields_of_structs_are_keys(sidecar: Sidecar, orders: DataFrame) -> None:
    """A path reaches a field, a name with a dot its column; NULL structs match nothing."""
    nested = orders.transform(sidecar.lookup_join("customers", on="order.Customer.id"))
    plain = orders.transform(sidecar.lookup_join("customers", on="order.id"))

    assert nested.columns == [*orders.columns, "name", "tier"]
    assert nested.schema.fields[:5] == orders.schema.fields
    assert added(nested, "n", "_lookup_key_0", "name") == [
        (0, 0, "Ćirić"),
        (1, 1, None),
        (2, 2, None),
    ]
    assert added(plain, "name") == [("Ćirić",), (None,), ("Ann",)]


def test_times_may_be_fields_of_structs(
    fake: ReachableSidecar, sidecar: Sidecar, orders: DataFrame
) -> None:
    """`as_of` and `event_time` take paths, too."""
    join = sidecar.lookup_join(
        "moments",
        on=[(F.lit(1).cast("long"), "id")],
        as_of="order.customer.at",
        event_time="order.customer.at",
    )

    assert added(orders.transform(join), "name") == [("Ann",), ("Ann II",), (None,)]
    assert received(fake, frames.Watermark)


@pytest.mark.parametrize("form", ["column", "list", "pairs"])
def test_expressions_are_keys(sidecar: Sidecar, orders: DataFrame, form: str) -> None:
    """A Column alone, in a list, or with the key's name; the output has the records' columns."""
    expression = F.lower("email")
    forms: dict[str, On] = {
        "column": expression,
        "list": [expression],
        "pairs": [(expression, "email")],
    }

    enriched = orders.transform(sidecar.lookup_join("people", on=forms[form], columns=["name"]))

    assert enriched.columns == [*orders.columns, "name"]
    assert added(enriched, "n", "email", "name") == [
        (0, "ANN@x", "Ann"),
        (1, "bob@X", "Bob"),
        (2, None, None),
    ]


@pytest.mark.skipif(not HAS_ARROW_FUNCTIONS, reason="needs PySpark 4.1")
@pytest.mark.parametrize("columns", [None, []])
def test_keys_of_functions_are_hidden(
    sidecar: Sidecar, orders: DataFrame, columns: list[str] | None
) -> None:
    """With `via="udf"` fields and expressions are its arguments, and not in the output."""
    on: list[On] = ["order.customer.id", F.col("order.customer.id") + 0]
    for key in on:
        join = sidecar.lookup_join("customers", on=key, columns=columns, how="inner", via="udf")

        enriched = orders.transform(join)

        added_names = [] if columns == [] else ["name", "tier"]
        assert enriched.columns == [*orders.columns, *added_names]
        assert added(enriched, "n", "_lookup_key_0") == [(0, 0)]


def test_names_of_expressions_are_those_of_spark(sidecar: Sidecar, orders: DataFrame) -> None:
    """An alias may name the key's column; in another order than the key's, it is refused."""
    number, letter = (F.col("n") + 1).cast("long").alias("a"), F.lit("x").alias("b")

    enriched = orders.transform(sidecar.lookup_join("composite", on=[number, letter]))

    assert added(enriched, "name") == [("one",), (None,), (None,)]
    swapped = refusal(orders, sidecar.lookup_join("composite", on=[letter, number]))
    assert "the key is (a, b), not (b, a); the order is unclear" in swapped.detail


def test_pass_mixes_all_kinds_of_keys(sidecar: Sidecar, orders: DataFrame) -> None:
    """Each lookup of a pass has its own keys; a path that is used twice is sent once."""
    joins = sidecar.lookup_joins(
        [
            sidecar.lookup_join("people", on=F.lower("email"), prefix="p_"),
            sidecar.lookup_join("customers", on="order.customer.id", columns=["name"]),
            sidecar.lookup_join("people", on="p_boss", prefix="b_"),
            sidecar.lookup_join("customers", on=["order.customer.id"], columns=["tier"]),
        ],
        event_time="order.customer.at",
    )

    enriched = orders.transform(joins)

    assert enriched.columns == [
        *orders.columns,
        "p_name",
        "p_boss",
        "name",
        "b_name",
        "b_boss",
        "tier",
    ]
    assert added(enriched, "p_name", "name", "b_name", "tier")[0] == ("Ann", "Ćirić", None, None)


def test_impossible_keys_are_refused(sidecar: Sidecar, orders: DataFrame) -> None:
    """The driver's error names the key and the remedy."""
    earlier = sidecar.lookup_join("people", on=F.lower("email"))
    later = sidecar.lookup_joins([earlier, sidecar.lookup_join("people", on=F.lower("boss"))])
    refusals = {
        "struct 'customer' has no field 'ids'; did you mean id?": refusal(
            orders, sidecar.lookup_join("customers", on="order.customer.ids")
        ),
        "column 'order.customer' is struct<": refusal(
            orders, sidecar.lookup_join("customers", on="order.customer")
        ),
        "column 'array(n)' is array<int>": refusal(
            orders, sidecar.lookup_join("customers", on=F.array("n"))
        ),
        "chain a second lookup_join": refusal(orders, later),
        "(sum(n)); [MISSING_GROUP_BY]": refusal(
            orders, sidecar.lookup_join("customers", on=F.sum("n"))
        ),
        "compute aggregates before": refusal(
            orders, sidecar.repartition_for("customers", on=F.count("*") + 1)
        ),
    }

    assert [text for text, error in refusals.items() if text not in error.detail] == []
    with pytest.raises(ValueError, match=r"explode\(emails\), which makes several records of one"):
        sidecar.lookup_join("people", on=F.explode("emails"))
    for name in ("*", "order.customer.*"):
        with pytest.raises(ValueError, match=r"\*, which is several columns; name each"):
            sidecar.lookup_join("people", on=[F.col(name)])
    with pytest.raises(ValueError, match="event_time is a column's name, not Column<'n'>; add"):
        sidecar.lookup_join("people", on="email", event_time=F.col("n"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="sequence is a list of names, not Column<'n'>"):
        sidecar.repartition_for("people", sequence=F.col("n"))  # type: ignore[arg-type]


def test_rows_of_a_key_become_records(sidecar: Sidecar, orders: DataFrame) -> None:
    """With `expand` columns have single values; the types may be declared without a sidecar."""
    options: dict[str, Any] = {"on": "order.customer.id", "expand": True}

    enriched = orders.transform(sidecar.lookup_join("invoices", **options))
    declared = orders.transform(
        sidecar.lookup_join("invoices", how="inner", schema="number long, text string", **options)
    )

    assert [field.simpleString() for field in enriched.schema.fields[5:]] == [
        "number:int",
        "text:string",
    ]
    assert added(enriched, "n", "number", "text") == [
        *((0, 7, "a"), (0, 9, "b"), (1, None, None), (2, None, None))
    ]
    assert added(declared, "n", "number", "text") == [(0, 7, "a"), (0, 9, "b")]


def test_dimension_must_fit_expand_and_default(
    spark_session: SparkSession, sidecar: Sidecar, orders: DataFrame
) -> None:
    """An array column is not expanded, a default row must exist, keys are not multiplied."""
    wanted = orders.withColumnRenamed("order.id", "id")
    several = sidecar.lookup_join("invoices", on="id", expand=True)
    refusals = {
        "set match: all": refusal(wanted, sidecar.lookup_join("arrays", on="id", expand=True)),
        "has no default row": refusal(
            wanted, sidecar.lookup_join("customers", on="id", on_error="default")
        ),
        "key column 'text' has several rows": refusal(
            wanted,
            sidecar.lookup_joins([several, sidecar.lookup_join("people", on="text", prefix="x_")]),
        ),
    }

    assert [text for text, error in refusals.items() if text not in error.detail] == []
    assert {error.code for error in refusals.values()} == {ErrorCode.BAD_REQUEST}
    by_default = sidecar.lookup_join("invoices", on="id", on_timeout="default", expand=True)
    assert wanted.transform(by_default).count() == 4
    name = sidecar.lookup_udf("invoices", columns=["text"], on_error="default")
    assert wanted.select(name("id").alias("found")).count() == 3
    registered = sidecar.register(spark_session, prefix="d_", on_error="default")
    assert registered == {"d_composite": "composite", "d_invoices": "invoices"}
