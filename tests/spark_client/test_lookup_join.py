"""A lookup join applied to DataFrames: names, types, metadata and what comes out of Spark."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its usual name

from lookup_core.dimension_schema import VersionColumns
from lookup_core.errors import ErrorCode, InvalidRequest, SidecarUnreachable
from spark_client import Sidecar
from spark_client.fake_sidecar import FakeDimension, FakeSidecar
from tests.spark_client.fake_server import FakeServer
from tests.spark_client.partition import DIMENSIONS

pytestmark = pytest.mark.full


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[Sidecar]:
    """A sidecar that the driver and the workers reach."""
    with FakeServer(FakeSidecar(DIMENSIONS)).at(tmp_path / "s.sock") as url:
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
    """What the driver is told."""
    with pytest.raises(InvalidRequest) as caught:
        records.transform(sidecar.lookup_join("customers", **{"on": "id", **options}))
    return caught.value


def test_records_are_enriched(sidecar: Sidecar, records: DataFrame) -> None:
    """Columns in their order and types, then the status; asked of the sidecar by the driver."""
    enriched = records.transform(
        sidecar.lookup_join("customers", on="id", prefix="c_", status_column="_s")
    )

    assert enriched.schema.simpleString() == (
        "struct<id:bigint,n:string,c_name:string,c_tier:int,"
        "_s:struct<outcome:string,age_ms:bigint,error:string>>"
    )
    hit = {"outcome": "hit", "age_ms": 7, "error": None}
    none = {"outcome": "missing", "age_ms": None, "error": None}
    assert collected(enriched) == [
        {"id": 1, "n": "a", "c_name": "Ann", "c_tier": 1, "_s": hit},
        {"id": 9, "n": "b", "c_name": None, "c_tier": None, "_s": none},
        {"id": None, "n": "c", "c_name": None, "c_tier": None, "_s": none},
        {"id": 3, "n": "d", "c_name": "Ćirić", "c_tier": None, "_s": hit},
    ]


def test_given_schema_needs_no_driver_sidecar(sidecar: Sidecar, records: DataFrame) -> None:
    """With `schema` nothing is asked on the driver, and answers are cast to it."""
    elsewhere = Sidecar("unix:///nowhere", connect_timeout=0.01)
    schema = "name string, tier bigint"

    promised = records.transform(elsewhere.lookup_join("customers", on="id", schema=schema))
    enriched = records.transform(
        sidecar.lookup_join("customers", on="id", columns=["tier"], schema=schema)
    )

    assert promised.schema.names == ["id", "n", "name", "tier"]
    assert enriched.schema["tier"].dataType.simpleString() == "bigint"
    assert [row["tier"] for row in collected(enriched)] == [1, None, None, None]


def test_metadata_of_the_input_survives(sidecar: Sidecar, records: DataFrame) -> None:
    """Fields keep their metadata, which carries event-time watermarks."""
    marked = records.withColumn("n", F.col("n").alias("n", metadata={"spark.watermarkDelayMs": 1}))

    enriched = marked.transform(sidecar.lookup_join("customers", on="id"))

    assert enriched.schema["n"].metadata == {"spark.watermarkDelayMs": 1}


def test_names_with_dots_are_carried(sidecar: Sidecar, records: DataFrame) -> None:
    """Whatever a column is called, its name comes out unchanged."""
    dotted = records.withColumnRenamed("n", "n.of`it")

    enriched = dotted.transform(sidecar.lookup_join("customers", on="ID", columns=["name"]))

    assert enriched.columns == ["id", "n.of`it", "name"]
    assert [row["n.of`it"] for row in collected(enriched)] == ["a", "b", "c", "d"]


def test_driver_refuses_what_cannot_work(sidecar: Sidecar, records: DataFrame) -> None:
    """Unknown columns, clashes and wrong types are errors before any task, naming the remedy."""
    unknown = refusal(sidecar, records, on="customer")
    offered = refusal(sidecar, records, columns=["nope"])
    clash = refusal(sidecar, records, status_column="N")
    added = refusal(sidecar, records.withColumnRenamed("n", "Name"))
    twice = refusal(sidecar, records.withColumn("ID2", F.lit(1)).toDF("id", "n", "ID"))
    nested = refusal(sidecar, records.withColumn("id", F.array("id")))
    time = refusal(sidecar, records, event_time="n")

    assert (unknown.code, offered.code) == (ErrorCode.UNKNOWN_COLUMN, ErrorCode.UNKNOWN_COLUMN)
    assert "they have id, n" in unknown.detail
    assert "choose another prefix" in clash.detail
    assert "Name, name" in added.detail
    assert "rename one of them" in twice.detail
    assert nested.code is ErrorCode.KEY_TYPE
    assert "must be a timestamp" in time.detail


def test_as_of_is_a_time_of_the_records(sidecar: Sidecar, records: DataFrame) -> None:
    """A text, a column that there is not, and a dimension without versions are errors."""
    text = refusal(sidecar, records, as_of="n", schema="name string")
    unknown = refusal(sidecar, records, as_of="ts", schema="name string")
    dated = records.withColumn("ts", F.lit("2013-01-01").cast("date"))
    useless = refusal(sidecar, dated, as_of="ts")

    assert text.detail == "as_of 'n' is string; it must be a timestamp or date"
    assert unknown.code is ErrorCode.UNKNOWN_COLUMN
    assert "no versions" in useless.detail


def test_records_get_the_version_of_their_time(spark_session: SparkSession, tmp_path: Path) -> None:
    """Timestamps with and without a zone, and dates: all in UTC."""
    day = 86_400_000_000
    since = pa.array([0, day, 2 * day], pa.timestamp("us", "UTC"))
    table = pa.table({"id": [1, 1, 1], "name": ["a", "b", "c"], "since": since})
    history = FakeDimension(table, ("id",), versions=VersionColumns("since"))
    records = spark_session.sql("SELECT 1L AS id, DATE '1970-01-02' AS day").selectExpr(
        "id", "day", "cast(day AS timestamp_ntz) AS local", "cast(day AS timestamp) AS at"
    )

    with FakeServer(FakeSidecar({"d": history})).at(tmp_path / "s") as url:
        joins = [
            Sidecar(url).lookup_join("d", on="id", as_of=name, columns=["name"])
            for name in ("day", "local", "at")
        ]
        found = [row["name"] for join in joins for row in records.transform(join).collect()]

    assert found == ["b", "b", "b"]


def test_unknown_dimension_shows_on_the_driver(sidecar: Sidecar, records: DataFrame) -> None:
    """A dimension that the sidecar does not know is an error before any task."""
    with pytest.raises(InvalidRequest, match="unknown_dimension"):
        records.transform(sidecar.lookup_join("nope", on="id"))


def test_missing_sidecar_names_the_remedy(records: DataFrame) -> None:
    """Without a sidecar on the driver the path is named, and what to do instead."""
    nowhere = Sidecar("unix:///nowhere.sock", connect_timeout=0.01)

    with pytest.raises(SidecarUnreachable, match=r"nowhere\.sock: no such socket"):
        records.transform(nowhere.lookup_join("customers", on="id"))


def test_wrong_schema_is_refused(sidecar: Sidecar, records: DataFrame) -> None:
    """A schema that is no list of columns, or lacks one that is named, is a mistake."""
    for options in ({"schema": "bigint"}, {"schema": "a string", "columns": ["b"]}):
        with pytest.raises(ValueError, match="schema="):
            records.transform(sidecar.lookup_join("customers", on="id", **options))


def test_partitions_without_records_are_fine(sidecar: Sidecar, records: DataFrame) -> None:
    """Empty partitions and empty inputs give nothing, and need no sidecar."""
    nowhere = Sidecar("unix:///nowhere", connect_timeout=0.01)
    schema = "name string, tier int"
    join = nowhere.lookup_join("customers", on="id", schema=schema)

    assert collected(records.where("id = 77").transform(join)) == []
    spread = records.repartition(7).transform(sidecar.lookup_join("customers", on="id"))
    assert len(collected(spread)) == 4


def test_result_types_are_arrow_types_of_spark(spark_session: SparkSession, tmp_path: Path) -> None:
    """Every type that a dimension may have arrives in Spark as the value that it was."""
    table = pa.table(
        {
            "id": pa.array([1], pa.int64()),
            "u": pa.array([2**63], pa.uint64()),
            "text": pa.array(["x"], pa.large_utf8()),
            "at": pa.array([10**18], pa.timestamp("ns", "Europe/Berlin")),
            "local": pa.array([1000], pa.timestamp("ms")),
            "half": pa.array([1.5], pa.float32()),
        }
    )
    ids = spark_session.range(1, 2).withColumnRenamed("id", "key")
    with FakeServer(FakeSidecar({"d": FakeDimension(table, ("id",))})).at(tmp_path / "s") as url:
        enriched = ids.transform(Sidecar(url).lookup_join("d", on="key"))
        (row,) = enriched.select(
            F.col("u").cast("string"),
            "text",
            F.unix_micros("at").alias("at"),
            F.col("local").cast("string"),
            "half",
        ).collect()

    assert row.asDict() == {
        "u": str(2**63),
        "text": "x",
        "at": 10**15,
        "local": "1970-01-01 00:00:01",
        "half": 1.5,
    }
