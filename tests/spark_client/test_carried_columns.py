"""Columns that only pass through: their values and types are those of a join in Spark."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.ml.linalg import Vectors
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its usual name

from lookup_core.errors import ErrorCode, InvalidRequest
from spark_client import Sidecar
from spark_client.driver.input_columns import addressable
from spark_client.testing.fake_server import MemoryServer
from spark_client.testing.served_dimension import ServedDimension
from tests.spark_client.memory_transport import ReachableSidecar

pytestmark = pytest.mark.full

NAMES = pa.table({"id": [7, 8], "name": ["one", "two"]})
TAGS = pa.table({"id": [7, 7, 9], "tag": ["a", "b", "c"], "rank": [1, 2, 3]})
VALUES = {
    "year_month": "INTERVAL '1-2' YEAR TO MONTH",
    "years": "INTERVAL '-3' YEAR",
    "day_time": "INTERVAL '1 02:03:04.5' DAY TO SECOND",
    "calendar": "make_interval(0, 1, 0, 3, 4, 5, 6.000007)",
    "fixed": "CAST('ab' AS CHAR(5))",
    "bounded": "CAST('ab ' AS VARCHAR(5))",
    "void": "NULL",
    "empty_array": "array()",
    "empty_map": "map()",
    "empty_arrays": "array(array())",
    "same_names": "named_struct('a', 1, 'a', 2)",
    "in_struct": "named_struct('term', INTERVAL '1-2' YEAR TO MONTH, 'n', 1)",
    "in_array": "array(make_interval(0, 1, 0, 3), NULL)",
    "in_map": "map('a', INTERVAL '5' MONTH)",
}
NEWER_VALUES = {  # {name: (a function of PySpark that is as new, expression)}
    "collated": ("collate", "collate('Ab', 'UTF8_LCASE')"),
    "collated_keys": ("collate", "map(collate('Ab', 'UTF8_LCASE'), 1)"),
    "variant": ("parse_json", """parse_json('{"a": [1, null]}')"""),
    "time": ("make_time", "TIME'12:13:14.123456'"),
    "point": ("st_geomfromwkb", "st_geomfromwkb(X'0101000000000000000000F03F0000000000000040')"),
}


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    """A sidecar that the driver and the workers reach."""
    dimensions = {
        "names": ServedDimension(NAMES, ("id",)),
        "tags": ServedDimension(TAGS, ("id",), has_all_rows=True),
        "codes": ServedDimension(NAMES, ("name",)),
    }
    path = tmp_path_factory.mktemp("sidecar") / "s.sock"
    with MemoryServer(ReachableSidecar(dimensions)).at(path) as url:
        yield Sidecar(url, connect_timeout=20.0)


@pytest.fixture(scope="module")
def carried(spark_session: SparkSession) -> Iterator[DataFrame]:
    """Records with a column of each type, which has values and a NULL."""
    newer = {name: text for name, (since, text) in NEWER_VALUES.items() if hasattr(F, since)}
    spark_session.conf.set("spark.sql.preserveCharVarcharTypeInfo", "true")
    rows = [(7, Vectors.dense([1.0, 2.0])), (8, Vectors.sparse(3, [1], [2.5])), (9, None)]
    keys = spark_session.createDataFrame(rows, ["id", "vector"]).coalesce(1)
    at = F.timestamp_seconds("id").alias("at")
    marked = F.lit("x").alias("marked", metadata={"__CHAR_VARCHAR_TYPE_STRING": "char(3)"})
    values = [
        F.expr(f"CASE WHEN id < 9 THEN {text} END").alias(name)
        for name, text in {**VALUES, **newer}.items()
    ]
    yield keys.select("*", at, marked, *values)
    spark_session.conf.unset("spark.sql.preserveCharVarcharTypeInfo")


def shown(frame: DataFrame, capsys: pytest.CaptureFixture[str]) -> str:
    """The values of all columns as Spark shows them: Python has no values of some types."""
    capsys.readouterr()
    frame.show(truncate=False, vertical=True)
    return capsys.readouterr().out


def types_of(frame: DataFrame) -> list[Any]:
    """The name, type and metadata of each column."""
    return [(field.name, field.dataType, field.metadata) for field in frame.schema]


def dimension(frame: DataFrame, table: pa.Table) -> DataFrame:
    """The rows of a dimension in Spark."""
    return frame.sparkSession.createDataFrame(table.to_pylist())


FORMS: dict[str, dict[str, Any]] = {
    "auto": {},
    "batch": {"via": "batch"},
    "function": {"via": "udf"},
    "unordered": {"mode": "unordered"},
    "key ordered": {"mode": "key_ordered"},
    "watermarks": {"event_time": "at", "mode": "unordered"},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("how", ["left", "inner"])
def test_columns_pass_in_each_form(
    sidecar: Sidecar,
    carried: DataFrame,
    capsys: pytest.CaptureFixture[str],
    form: str,
    how: Any,  # noqa: ANN401 -- a literal
) -> None:
    """Columns of all types together pass in each mode, by batches and as a function."""
    enriched = carried.transform(sidecar.lookup_join("names", on="id", how=how, **FORMS[form]))

    expected = carried.join(F.broadcast(dimension(carried, NAMES)), "id", how)
    assert types_of(enriched) == types_of(expected)
    assert shown(enriched, capsys) == shown(expected, capsys)


@pytest.mark.parametrize("how", ["left", "inner"])
def test_columns_pass_when_rows_multiply(
    sidecar: Sidecar,
    carried: DataFrame,
    capsys: pytest.CaptureFixture[str],
    how: Any,  # noqa: ANN401 -- a literal
) -> None:
    """With `expand` and several lookups in one pass, a record keeps its columns each time."""
    twice = sidecar.lookup_join("tags", on="id", expand=True, prefix="t.", how=how)
    again = sidecar.lookup_join("tags", on="id", expand=True, prefix="u.", columns=["rank"])
    joins = [twice, sidecar.lookup_join("names", on="id"), again]

    enriched = carried.transform(sidecar.lookup_joins(joins))

    tags = dimension(carried, TAGS).select("id", F.col("tag").alias("t.tag"), "rank")
    ranks = dimension(carried, TAGS).select("id", F.col("rank").alias("u.rank"))
    expected = (
        carried.join(F.broadcast(tags.withColumnRenamed("rank", "t.rank")), "id", how)
        .join(F.broadcast(dimension(carried, NAMES)), "id", "left")
        .join(F.broadcast(ranks), "id", "left")
    )
    order = ["id", "`t.rank`", "`u.rank`"]
    assert types_of(enriched) == types_of(expected)
    assert shown(enriched.orderBy(order), capsys) == shown(expected.orderBy(order), capsys)


def test_older_spark_names_the_column(carried: DataFrame) -> None:
    """Where Python must return each column, the error names column, type and remedy."""
    with pytest.raises(InvalidRequest) as caught:
        addressable(carried.select("id", "in_struct"))

    assert caught.value.code is ErrorCode.TYPE
    assert "column 'in_struct' is struct<term:interval year to month,n:int>" in str(caught.value)
    assert "cast it, drop it before the lookup, or use PySpark 4.1" in str(caught.value)


@pytest.mark.parametrize("kind", ["CHAR(3)", "VARCHAR(5)"])
def test_texts_of_a_length_are_keys(sidecar: Sidecar, carried: DataFrame, kind: str) -> None:
    """A key of char(n) or varchar(n) is a text like any other."""
    texts = carried.select("id", F.expr(f"CAST(IF(id = 7, 'one', 'abc') AS {kind})").alias("k"))
    join = sidecar.lookup_join("codes", on={"k": "name"}, columns=["id"], prefix="found_")

    enriched = texts.transform(join)

    assert enriched.select("id", "found_id").collect() == [(7, 7), (8, None), (9, None)]


def test_collated_key_is_refused(sidecar: Sidecar, spark_session: SparkSession) -> None:
    """A key whose collation equates different texts is refused, with the remedy."""
    if not hasattr(F, "collate"):
        pytest.skip("this version of PySpark has no collations")
    records = spark_session.sql("SELECT collate('a', 'UTF8_LCASE') AS id")

    with pytest.raises(InvalidRequest) as caught:
        records.transform(sidecar.lookup_join("names", on="id"))

    assert caught.value.code is ErrorCode.KEY_TYPE
    assert "column 'id' has the collation UTF8_LCASE" in str(caught.value)
    assert "on=F.collate('id', 'UTF8_BINARY')" in str(caught.value)


def test_refused_key_names_the_column(sidecar: Sidecar, spark_session: SparkSession) -> None:
    """A key of another type is refused with the records' column that the user joins by."""
    records = spark_session.sql("SELECT true AS customer")

    with pytest.raises(InvalidRequest) as caught:
        records.transform(sidecar.lookup_join("names", on={"customer": "id"}))

    assert caught.value.code is ErrorCode.KEY_TYPE
    assert 'key "id" is bigint, the given column is boolean' in str(caught.value)
    assert str(caught.value).endswith("; on= joins by customer")
