"""The Spark schema of an enriched DataFrame, and the dimension's columns in it.

Built from the input's own fields, because their metadata carries the event-time watermark.
"""

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType

from spark_client.spark_types import arrow_type, spark_type

STATUS = StructType(
    [
        StructField("outcome", StringType()),
        StructField("age_ms", LongType()),
        StructField("error", StringType()),
    ]
)


def output_schema(
    records: StructType, columns: StructType, *, prefix: str, status_column: str | None
) -> StructType:
    """The records' fields as they are, the dimension's behind them, all of those nullable."""
    added = [StructField(prefix + field.name, field.dataType) for field in columns]
    if status_column is not None:
        added.append(StructField(status_column, STATUS))
    return StructType([*records.fields, *added])


def dimension_columns(described: pa.Schema) -> StructType:
    """What a dimension offers, in Spark's types; raises InvalidRequest for what has none."""
    return StructType([StructField(field.name, spark_type(field)) for field in described])


def chosen_columns(given: StructType, names: Sequence[str] | None) -> StructType:
    """The columns of a schema given by the user, or those of them that are named."""
    if names is None:
        return given
    missing = [name for name in names if name not in given.names]
    if missing:
        raise ValueError(f"schema= lacks {', '.join(missing)}, which columns= names")
    return StructType([given[name] for name in names])


def arrow_columns(columns: StructType) -> pa.Schema:
    """The same columns as the answers are to be cast to."""
    return pa.schema([pa.field(field.name, arrow_type(field.dataType)) for field in columns])
