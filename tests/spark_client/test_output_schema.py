"""The Spark schema of an enriched DataFrame."""

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from spark_client.schemas import (
    STATUS,
    arrow_columns,
    chosen_columns,
    dimension_columns,
    output_schema,
)

RECORDS = StructType([StructField("n", LongType(), nullable=False, metadata={"watermark": 1})])
COLUMNS = StructType([StructField("name", StringType(), nullable=False)])


def test_records_keep_their_fields() -> None:
    """Types, nullability and metadata of the input stay; what is added may be null."""
    schema = output_schema(RECORDS, COLUMNS, prefix="c_", status_column="_lookup")

    assert schema == StructType(
        [
            StructField("n", LongType(), nullable=False, metadata={"watermark": 1}),
            StructField("c_name", StringType()),
            StructField("_lookup", STATUS),
        ]
    )
    assert schema["n"].metadata == {"watermark": 1}


def test_status_is_added_on_request_only() -> None:
    """Without a name for it there is no status."""
    assert output_schema(RECORDS, COLUMNS, prefix="", status_column=None).names == ["n", "name"]


def test_offered_columns_have_spark_types() -> None:
    """What the sidecar describes becomes what Spark is promised, and back what is cast to."""
    offered = dimension_columns(pa.schema({"a": pa.uint16(), "b": pa.large_utf8()}))

    assert offered == StructType([StructField("a", IntegerType()), StructField("b", StringType())])
    assert arrow_columns(offered) == pa.schema({"a": pa.int32(), "b": pa.utf8()})


def test_given_schema_may_be_narrowed() -> None:
    """Names choose and order the columns of a schema; a name that it lacks is an error."""
    given = StructType([StructField("a", LongType()), StructField("b", StringType())])

    assert chosen_columns(given, None) is given
    assert chosen_columns(given, ["b"]).names == ["b"]
    with pytest.raises(ValueError, match="lacks x"):
        chosen_columns(given, ["x"])
