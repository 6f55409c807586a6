"""A lookup as a function of columns: a scalar Arrow UDF that gives a struct.

Always in order, because Spark puts its results beside the rows that they belong to.
"""

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]  # missing in its stubs
from pyspark.sql.types import StructType

from spark_client.connections import Address
from spark_client.lookup_settings import LookupSettings
from spark_client.lookup_task import LookupFunctionTask
from spark_client.output_schema import arrow_columns

LookupFunction = Callable[..., Column]


def lookup_udf(
    address: Address, dimension: str, *, columns: StructType, settings: LookupSettings
) -> LookupFunction:
    """A function of the key's columns, in the order of the dimension's key."""
    task = LookupFunctionTask(address, dimension, arrow_columns(columns), settings)

    def lookup(keys: Iterator[pa.Array]) -> Iterator[pa.Array]:
        return task(keys)

    lookup.__name__ = f"lookup_{dimension}"  # what a query plan shows
    return arrow_udf(lookup, returnType=columns)  # its kind stands in the type hints
