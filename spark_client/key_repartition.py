"""Repartitioning of a DataFrame by key group: equal keys come into the same partition.

Moves rows only; their order within an input partition is that of Spark's shuffle.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]  # missing in its stubs
from pyspark.sql.types import DoubleType, FloatType, StructField

from lookup_core.errors import ErrorCode, InvalidRequest
from lookup_core.keys.canonical_keys import KEY_GROUPS, key_groups, shards_of_groups
from spark_client.lookup_join import column_names
from spark_client.schemas import described_key, key_field
from spark_client.transport.connections import Address


@dataclass(frozen=True, slots=True)
class KeyRepartition:
    """A function of a DataFrame, for `DataFrame.transform`."""

    address: Address
    dimension: str
    columns: tuple[str, ...] | None  # None: the names of the dimension's key
    partitions: int | None  # None: `spark.sql.shuffle.partitions`

    def __call__(self, records: DataFrame) -> DataFrame:
        """The same rows, fields and metadata, in other partitions.

        Raises InvalidRequest for unknown columns and columns that are no keys; without `columns`
        also BackendError or SidecarUnreachable.
        """
        found = self._key_fields(records)
        for field in found:
            _check_key(field)
        count = self.partitions
        if count is None:
            usual = records.sparkSession.conf.get("spark.sql.shuffle.partitions")
            assert usual is not None  # it has a default
            count = min(int(usual), KEY_GROUPS)
        shard = arrow_udf(_shards(count), returnType="int")
        keys = [records[_quoted(field.name)] for field in found]
        return records.repartitionById(count, shard(*keys))

    def _key_fields(self, records: DataFrame) -> list[StructField]:
        columns = self.columns or described_key(self.address, self.dimension)
        names = column_names(records)
        try:
            return [records.schema[names.position(name)] for name in columns]
        except InvalidRequest as error:
            if self.columns is None:
                error.add_note("The dimension's key has this name; name the records' with on=.")
            raise


def _check_key(field: StructField) -> None:
    key_field(field.name, field.dataType)
    if isinstance(field.dataType, (FloatType, DoubleType)):
        kind = field.dataType.simpleString()
        detail = f"column {field.name!r} is {kind}, which is no key to divide by; cast it"
        raise InvalidRequest(ErrorCode.KEY_TYPE, detail)


def _quoted(name: str) -> str:
    # Unquoted, Spark reads dots and backticks in names as a path.
    return f"`{name.replace('`', '``')}`"


def _shards(count: int) -> Callable[..., pa.Array]:
    def shards(*keys: pa.Array) -> pa.Array:
        batch = pa.record_batch(list(keys), [f"key {index}" for index in range(len(keys))])
        return pa.array(shards_of_groups(key_groups(batch), count))

    return shards
