"""A pass as one Arrow function: the same output as a pass over batches, from fewer columns."""

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its usual name

from spark_client import Sidecar
from spark_client.driver.options import How
from spark_client.testing.fake_server import MemoryServer
from spark_client.testing.served_dimension import ServedDimension
from tests.spark_client.builders import ALL_DIMENSIONS
from tests.spark_client.memory_transport import ReachableSidecar

pytestmark = pytest.mark.full

NOON = dt.datetime(2013, 1, 1, 12, tzinfo=dt.UTC)
KEYS = {  # {type in Spark: (key in Arrow, a value)}
    "boolean": (pa.bool_(), True),
    "tinyint": (pa.int8(), -1),
    "smallint": (pa.int16(), 300),
    "int": (pa.int32(), 70_000),
    "bigint": (pa.int64(), 2**53 + 1),
    "string": (pa.utf8(), "é\n`x`"),
    "binary": (pa.binary(), b"\0\xff"),
    "date": (pa.date32(), NOON.date()),
    "timestamp": (pa.timestamp("us", "UTC"), NOON),
    "timestamp_ntz": (pa.timestamp("us"), NOON.replace(tzinfo=None)),
    "decimal(9,2)": (pa.decimal128(9, 2), Decimal("1.50")),
}
TIERS = pa.table({"tier": pa.array([1, 4], pa.int32()), "label": ["one", "four"]})
WIDE = 12  # columns of the records in a file
PLACES = [(1, "x"), (9, "y"), (None, "x"), (3, None), (2, "y"), (1, "y"), (4, "z")]


def keyed(kind: pa.DataType, value: object) -> ServedDimension:
    """A dimension with this key and its text."""
    key = pa.array([value], kind)
    return ServedDimension(pa.table({"key": key, "text": [str(value)]}), ("key",))


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    """A sidecar that the driver and the workers reach."""
    dimensions = {
        **ALL_DIMENSIONS,
        "tiers": ServedDimension(TIERS, ("tier",)),
        **{f"by {name}": keyed(*key) for name, key in KEYS.items()},
    }
    path = tmp_path_factory.mktemp("sidecar") / "s.sock"
    with MemoryServer(ReachableSidecar(dimensions)).at(path) as url:
        yield Sidecar(url, connect_timeout=20.0)


@pytest.fixture
def records(spark_session: SparkSession) -> DataFrame:
    """Records with NULLs and repeated keys, of which two columns are not needed."""
    schema = "id long, b string"
    frame = spark_session.createDataFrame(PLACES * 20, schema).coalesce(1)
    more = frame.withColumn("n", F.monotonically_increasing_id())
    return more.withColumn("ts", F.timestamp_micros("n"))


def outcomes(enriched: DataFrame) -> tuple[Any, ...]:
    """Schema and rows, in order."""
    return enriched.schema, [row.asDict(recursive=True) for row in enriched.collect()]


def assert_both_ways_agree(records: DataFrame, join: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    """Compare the schemas and the rows of both ways; the rows."""
    schema, rows = outcomes(records.transform(join("udf")))
    assert (schema, rows) == outcomes(records.transform(join("batch")))
    return rows


def plan_of(frame: DataFrame) -> str:
    """The physical plan."""
    return str(frame._jdf.queryExecution().executedPlan())


@pytest.mark.parametrize(
    ("how", "status", "rows"),
    [("left", "_s", 140), ("inner", None, 100), ("semi", None, 100), ("anti", "_s", 40)],
)
def test_joins_of_both_ways_agree(
    sidecar: Sidecar, records: DataFrame, how: How, status: str | None, rows: int
) -> None:
    """Schema, rows and order are those of a pass over batches, for each kind of join."""

    def join(via: Any) -> Any:  # noqa: ANN401 -- a literal, a transform
        return sidecar.lookup_join(
            "customers", on="ID", how=how, prefix="c.", status_column=status, via=via
        )

    assert len(assert_both_ways_agree(records, join)) == rows


@pytest.mark.parametrize("how", ["left", "inner"])
def test_passes_of_both_ways_agree(sidecar: Sidecar, records: DataFrame, how: How) -> None:
    """Composite keys, versions, event times and keys from earlier lookups, in one pass."""

    def joins(via: Any) -> Any:  # noqa: ANN401 -- as above
        return sidecar.lookup_joins(
            [
                sidecar.lookup_join("customers", on="id", status_column="_s"),
                sidecar.lookup_join("composite", on={"id": "a", "b": "b"}, prefix="p_"),
                sidecar.lookup_join("history", on="id", as_of="ts", prefix="h_", columns=["name"]),
                sidecar.lookup_join("tiers", on="tier", how=how),
            ],
            event_time="ts",
            capacity=30,
            via=via,
        )

    rows = assert_both_ways_agree(records, joins)

    assert {row["label"] for row in rows} >= {"one", "four"}


@pytest.mark.parametrize(
    ("how", "added", "rows"), [("left", 2, 5), ("inner", 2, 4), ("semi", 0, 4), ("anti", 0, 1)]
)
def test_records_without_columns_are_counted(
    sidecar: Sidecar, spark_session: SparkSession, how: How, added: int, rows: int
) -> None:
    """Records that have only their key, an expression, leave as often as others."""
    nothing = spark_session.range(0, 5, 1, 2).select()

    def join(via: Any) -> Any:  # noqa: ANN401 -- as above
        key = F.monotonically_increasing_id() % 2**33 + 3  # 3 to 5 in the larger partition
        return sidecar.lookup_join("customers", on=[(key, "id")], how=how, prefix="`.", via=via)

    found = assert_both_ways_agree(nothing, join)

    assert [len(row) for row in found] == [added] * rows


@pytest.fixture
def new_york(spark_session: SparkSession) -> Iterator[SparkSession]:
    """The session with another time zone than UTC."""
    option = "spark.sql.session.timeZone"
    spark_session.conf.set(option, "America/New_York")
    yield spark_session
    spark_session.conf.set(option, "UTC")


def test_keys_of_all_types_agree(sidecar: Sidecar, new_york: SparkSession) -> None:
    """Each type of key arrives in Python as with batches; NULL matches nothing."""
    schema = ", ".join(f"`{name}` {name}" for name in KEYS)
    found = tuple(value for _, value in KEYS.values())
    frame = new_york.createDataFrame([found, (None,) * len(KEYS)], schema).coalesce(1)

    def joins(via: Any) -> Any:  # noqa: ANN401 -- as above
        return sidecar.lookup_joins(
            [
                sidecar.lookup_join(f"by {name}", on={name: "key"}, prefix=f"{name}_")
                for name in KEYS
            ],
            via=via,
        )

    first, second = assert_both_ways_agree(frame, joins)

    assert [first[f"{name}_text"] for name in KEYS] == [str(value) for value in found]
    assert {second[f"{name}_text"] for name in KEYS} == {None}


def test_odd_names_are_the_same_columns(sidecar: Sidecar, records: DataFrame) -> None:
    """Dots, backticks, and the function's own name are columns like others."""
    odd = records.select(F.col("id").alias("a.`id`"), F.col("n").alias("_LOOKUP"), F.col("b"))

    def join(via: Any) -> Any:  # noqa: ANN401 -- as above
        return sidecar.lookup_join(
            "customers", on={"a.`id`": "id"}, prefix="`.", how="inner", via=via
        )

    rows = assert_both_ways_agree(odd, join)

    assert list(rows[0]) == ["a.`id`", "_LOOKUP", "b", "`.name", "`.tier"]


@pytest.fixture
def file(spark_session: SparkSession, tmp_path: Path) -> DataFrame:
    """Wide records in a file."""
    frame = spark_session.range(0, 200, 1, 2).select(
        (F.col("id") % 6).alias("id"), *(F.col("id").alias(f"c{at}") for at in range(1, WIDE))
    )
    frame.write.parquet(str(tmp_path / "wide"))
    return spark_session.read.parquet(str(tmp_path / "wide"))


def test_unused_columns_are_not_read(sidecar: Sidecar, file: DataFrame) -> None:
    """The scan has the used and the needed columns, and the function is evaluated once."""
    join = sidecar.lookup_join("customers", on="id", how="inner", via="udf")

    used = file.transform(join).where("tier > 1 and c3 > 5").selectExpr("c2", "name", "tier + 1")

    plan = plan_of(used)
    assert "ReadSchema: struct<id:bigint,c2:bigint,c3:bigint>" in plan
    assert plan.count("ArrowEvalPython [lookup_customers(id") == 1
    assert used.count() == file.where("c3 > 5 and id in (2, 4)").count()


def test_unused_lookups_are_not_sent(records: DataFrame) -> None:
    """A query that uses no added column calls no sidecar, unless the join drops records."""
    nowhere = Sidecar("unix:///nowhere", connect_timeout=0.01)
    left = nowhere.lookup_join("d", on="id", schema="name string", via="udf")
    nothing = nowhere.lookup_join("d", on="id", columns=[], schema="name string", via="udf")
    inner = nowhere.lookup_join("d", on="id", schema="name string", how="inner", via="udf")

    assert records.transform(left).select("n").count() == 140
    assert records.transform(nothing).schema == records.schema
    with pytest.raises(PythonException, match="SidecarUnreachable"):
        records.transform(inner).select("n").count()


@pytest.mark.parametrize("is_columnar", ["false", "true"])
def test_functions_follow_functions(
    sidecar: Sidecar, file: DataFrame, spark_session: SparkSession, is_columnar: str
) -> None:
    """Functions behind each other, and behind `mapInArrow`, give each record its row."""
    option = "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled"
    spark_session.conf.set(option, is_columnar)
    function = sidecar.lookup_udf("customers")
    try:
        mapped = file.mapInArrow(lambda batches: batches, file.schema)
        enriched = (
            mapped.transform(sidecar.lookup_join("customers", on="id", prefix="a_", via="udf"))
            .transform(sidecar.lookup_join("customers", on="id", prefix="b_", via="udf"))
            .select("id", "a_name", "b_name", function("id").alias("c"))
        )
        rows = enriched.collect()
    finally:
        spark_session.conf.unset(option)

    names = {None: None, 1: "Ann", 2: None, 3: "Ćirić", 4: ""}
    expected = [names.get(row["id"]) for row in rows]
    assert len(rows) == 200
    assert [row["a_name"] for row in rows] == [row["b_name"] for row in rows] == expected
    assert [row["c"] and row["c"]["name"] for row in rows] == expected


def test_errors_and_empty_inputs_agree(sidecar: Sidecar, records: DataFrame) -> None:
    """A failed task names the lookup; partitions without records connect to nothing."""
    nowhere = Sidecar("unix:///nowhere", connect_timeout=0.01)
    promised = nowhere.lookup_join("d", on="id", schema="name string", via="udf")
    wrong = sidecar.lookup_join("customers", on="id", schema="name int", via="udf")

    assert records.transform(promised).where("rand() > 2").select("n").collect() == []
    assert records.repartition(3).where("n < 0").transform(promised).collect() == []
    with pytest.raises(PythonException, match="declare name string in schema="):
        records.transform(wrong).collect()
