"""Joins, functions and repartitioning in Spark: names, types, metadata, values and traces."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its usual name

from lookup_core.errors import ErrorCode, InvalidRequest
from spark_client import Sidecar
from spark_client.driver.input_columns import InputColumns
from spark_client.driver.key_repartition import divided_by_salt, in_sequence
from spark_client.testing.fake_server import MemoryServer
from spark_client.testing.served_dimension import ServedDimension
from tests.spark_client.builders import ALL_DIMENSIONS
from tests.spark_client.memory_transport import ReachableSidecar

pytestmark = pytest.mark.full

NOWHERE = Sidecar("unix:///nowhere", connect_timeout=0.01)


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[Sidecar]:
    """A sidecar that the driver and the workers reach."""
    dimensions = {
        **ALL_DIMENSIONS,
    }
    with MemoryServer(ReachableSidecar(dimensions)).at(tmp_path / "s.sock") as url:
        yield Sidecar(url, connect_timeout=20.0)


@pytest.fixture
def records(spark_session: SparkSession) -> DataFrame:
    """Four records in one partition."""
    return spark_session.createDataFrame(
        [(1, "a"), (9, "b"), (None, "c"), (3, "d")], "id long, n string"
    ).coalesce(1)


def collected(enriched: DataFrame) -> list[dict[str, Any]]:
    """All rows."""
    return [row.asDict(recursive=True) for row in enriched.collect()]


def refusal(sidecar: Sidecar, records: DataFrame, **options: Any) -> InvalidRequest:  # noqa: ANN401
    """The error on the driver."""
    with pytest.raises(InvalidRequest) as caught:
        records.transform(sidecar.lookup_join("customers", **{"on": "id", **options}))
    return caught.value


def test_records_are_enriched(sidecar: Sidecar, records: DataFrame) -> None:
    """The columns in their order and types, then the status, as the driver read them."""
    enriched = records.transform(
        sidecar.lookup_join("customers", on="id", prefix="c_", status_column="_s")
    )

    hit = {"outcome": "hit", "age_ms": 7, "error": None}
    none = {"outcome": "missing", "age_ms": None, "error": None}
    assert enriched.schema.simpleString() == (
        "struct<id:bigint,n:string,c_name:string,c_tier:int,"
        "_s:struct<outcome:string,age_ms:bigint,error:string>>"
    )
    assert collected(enriched) == [
        {"id": 1, "n": "a", "c_name": "Ann", "c_tier": 1, "_s": hit},
        {"id": 9, "n": "b", "c_name": None, "c_tier": None, "_s": none},
        {"id": None, "n": "c", "c_name": None, "c_tier": None, "_s": none},
        {"id": 3, "n": "d", "c_name": "Ćirić", "c_tier": None, "_s": hit},
    ]


def test_given_schema_needs_no_driver_sidecar(sidecar: Sidecar, records: DataFrame) -> None:
    """With `schema` the driver reads nothing, and answers are cast; empty inputs do not connect."""
    schema = "name string, tier bigint"

    promised = records.transform(NOWHERE.lookup_join("customers", on="id", schema=schema))
    enriched = records.repartition(7).transform(
        sidecar.lookup_join("customers", on="id", columns=["tier"], schema=schema)
    )

    assert promised.schema.names == ["id", "n", "name", "tier"]
    assert collected(promised.where("false")) == []
    assert enriched.schema["tier"].dataType.simpleString() == "bigint"
    assert Counter(row["tier"] for row in collected(enriched)) == {1: 1, None: 3}
    for options in ({"schema": "bigint"}, {"schema": "a string", "columns": ["b"]}):
        with pytest.raises(ValueError, match="schema"):
            records.transform(NOWHERE.lookup_join("customers", on="id", **options))


def test_metadata_and_odd_names_survive(sidecar: Sidecar, records: DataFrame) -> None:
    """Fields keep their metadata, which carries event-time watermarks, and names with dots."""
    marked = F.col("n").alias("n.of`it", metadata={"spark.watermarkDelayMs": 1})

    enriched = records.select("id", marked).transform(
        sidecar.lookup_join("customers", on="ID", columns=["name"])
    )

    assert enriched.columns == ["id", "n.of`it", "name"]
    assert enriched.schema[1].metadata == {"spark.watermarkDelayMs": 1}
    assert [row["n.of`it"] for row in collected(enriched)] == ["a", "b", "c", "d"]


def test_driver_refuses_impossible_joins(sidecar: Sidecar, records: DataFrame) -> None:
    """Unknown columns, clashes and wrong types are errors before any task, with the remedy."""
    dated = records.withColumn("ts", F.lit("2013-01-01").cast("date"))
    refusals = {
        "they have id, n": refusal(sidecar, records, on="customer"),
        'column "nope" does not exist': refusal(sidecar, records, columns=["nope"]),
        "set another prefix": refusal(sidecar, records, status_column="N"),
        'Name of the records, name of dimension "customers"': refusal(
            sidecar, records.withColumnRenamed("n", "Name")
        ),
        "rename one of them": refusal(sidecar, dated.toDF("id", "n", "ID")),
        "no key type": refusal(sidecar, records.withColumn("id", F.array("id"))),
        "event_time 'n' is string; it must be a timestamp, or whole milliseconds": refusal(
            sidecar, records, event_time="n"
        ),
        "as_of 'n' is string; it must be a timestamp or date": refusal(
            NOWHERE, records, as_of="n", schema="name string"
        ),
        "no column 'ts'": refusal(NOWHERE, records, as_of="ts", schema="name string"),
        "no versions": refusal(sidecar, dated, as_of="ts"),
    }

    assert [text for text, error in refusals.items() if text not in error.detail] == []
    codes = [error.code for error in refusals.values()]
    assert codes == [
        *(ErrorCode.UNKNOWN_COLUMN, ErrorCode.UNKNOWN_COLUMN),
        *(ErrorCode.BAD_REQUEST, ErrorCode.BAD_REQUEST, ErrorCode.BAD_REQUEST),
        *(ErrorCode.KEY_TYPE, ErrorCode.TYPE, ErrorCode.TYPE),
        *(ErrorCode.UNKNOWN_COLUMN, ErrorCode.BAD_REQUEST),
    ]


def test_lookups_share_a_pass(sidecar: Sidecar, records: DataFrame, tmp_path: Path) -> None:
    """Columns stand in the order of the lookups, also of another sidecar, and of one dimension."""
    tiers = pa.table({"tier": pa.array([1], pa.int32()), "title": ["gold"]})
    with MemoryServer(ReachableSidecar({"tiers": ServedDimension(tiers, ("tier",))})).at(
        tmp_path / "t.sock"
    ) as url:
        joins = sidecar.lookup_joins(
            [
                sidecar.lookup_join("customers", on="id", prefix="c_"),
                Sidecar(url).lookup_join("tiers", on={"C_Tier": "tier"}, status_column="_tier"),
                sidecar.lookup_join("customers", on={"next": "id"}, columns=["name"], how="inner"),
            ],
            mode="ordered",
        )
        enriched = records.withColumn("next", F.col("id") + 1).transform(joins)

        found = collected(enriched.drop("_tier"))
        outcomes = [row[0] for row in enriched.select("_tier.outcome").collect()]

    assert enriched.columns == ["id", "n", "next", "c_name", "c_tier", "title", "_tier", "name"]
    assert [tuple(row.values()) for row in found] == [
        (1, "a", 2, "Ann", 1, "gold", None),
        (3, "d", 4, "Ćirić", None, None, ""),
    ]
    assert outcomes == ["hit", "missing"]
    assert str(enriched._jdf.queryExecution().executedPlan()).count("MapInArrow") == 1


def test_pass_refuses_unclear_columns(sidecar: Sidecar, records: DataFrame) -> None:
    """A column that two lookups add, and one that none adds before, are refused by name."""
    customers = sidecar.lookup_join("customers", on="id")
    semi = sidecar.lookup_join("customers", on="id", how="semi")
    later = sidecar.lookup_join("customers", on={"tier": "id"}, prefix="l_")

    for lookups, text in [
        ([customers, customers], '"customers", tier of dimension "customers"; set another prefix'),
        ([later, customers], "later in the list; move that lookup before 'customers'$"),
        ([semi, later], "no column 'tier'; they have id, n$"),
        ([customers, sidecar.lookup_join("customers", on="no")], "they have id, n, name, tier$"),
        ([sidecar.lookup_join("customers", on="abs(id)")], r"write on=F.expr\('abs\(id\)'\)$"),
    ]:
        with pytest.raises(InvalidRequest, match=text):
            records.transform(sidecar.lookup_joins(lookups))


@pytest.fixture
def keyed(spark_session: SparkSession) -> DataFrame:
    """A thousand records of a hundred keys in four partitions, with NULLs among them."""
    key = F.when(F.col("id") % 97 != 0, F.col("id") % 100)
    return spark_session.range(0, 1000, 1, 4).select(key.alias("id"), F.col("id").alias("n"))


@pytest.mark.parametrize("is_older", [False, True], ids=["by id", "by salt"])
def test_sequence_orders_each_partition(
    sidecar: Sidecar, keyed: DataFrame, *, is_older: bool
) -> None:
    """Records of a partition have the order of the sequence, NULLs first, on every PySpark."""
    newest_first = keyed.withColumn("n", F.when(F.col("n") % 50 != 0, 1000 - F.col("n")))

    if is_older:
        divided = in_sequence(divided_by_salt(InputColumns(newest_first), [0], 5), ["n"])
    else:
        divide = sidecar.repartition_for("customers", partitions=5, sequence="n")
        divided = newest_first.transform(divide)

    parts = divided.groupBy(F.spark_partition_id()).agg(F.collect_list(F.coalesce("n", F.lit(-1))))
    found = [numbers for _, numbers in parts.collect()]
    assert len(found) == 5
    assert found == [sorted(numbers) for numbers in found]
    assert Counter(divided.collect()) == Counter(newest_first.collect())


def test_stream_has_no_sequence(sidecar: Sidecar, spark_session: SparkSession) -> None:
    """A sequence of a stream, or of an unknown column, is refused with the remedy."""
    stream = spark_session.readStream.format("rate").load()
    divide = sidecar.repartition_for("customers", on="value", sequence="timestamp")

    with pytest.raises(InvalidRequest, match="within foreachBatch"):
        stream.transform(divide)
    with pytest.raises(InvalidRequest, match="no column 'timestamp'; they have value"):
        spark_session.range(1).toDF("value").transform(divide)


def test_repartition_keeps_fields(sidecar: Sidecar, spark_session: SparkSession) -> None:
    """Odd names and metadata stay; the default number of partitions is the session's."""
    odd = F.col("id").alias("a.b`c", metadata={"spark.watermarkDelayMs": 10_000})
    records = spark_session.range(10).select(odd, F.lit("x").alias("`x`"))

    divided = records.transform(sidecar.repartition_for("customers", on=["a.b`c", "`x`"]))

    usual = int(spark_session.conf.get("spark.sql.shuffle.partitions") or 0)
    assert divided.schema == records.schema
    assert divided.schema[0].metadata == {"spark.watermarkDelayMs": 10_000}
    assert sorted(divided.collect()) == sorted(records.collect())
    assert divided.rdd.getNumPartitions() == usual


@pytest.mark.parametrize(
    ("column", "code", "detail"),
    [
        ("nope", ErrorCode.UNKNOWN_COLUMN, "no column 'nope'; they have key, n, x, a"),
        ("x", ErrorCode.KEY_TYPE, "'x' is double, which is no key to divide by; cast it"),
        ("a", ErrorCode.KEY_TYPE, "'a' is array<bigint>, which is no key type"),
        (None, ErrorCode.UNKNOWN_COLUMN, "no column 'id'"),
    ],
)
def test_driver_refuses_impossible_repartitions(
    sidecar: Sidecar, keyed: DataFrame, column: str | None, code: ErrorCode, detail: str
) -> None:
    """Unknown columns and columns that are no keys are errors before any job."""
    wider = keyed.select(
        F.col("id").alias("key"), "n", F.lit(1.5).alias("x"), F.array("n").alias("a")
    )

    with pytest.raises(InvalidRequest, match=code) as caught:
        wider.transform(sidecar.repartition_for("customers", on=column))

    assert detail in caught.value.detail
    assert ("with on=" in caught.value.detail) is (column is None)
