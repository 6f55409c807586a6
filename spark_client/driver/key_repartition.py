"""Repartitioning of a DataFrame by key group: equal keys come into the same partition.

A shuffle keeps no order of the rows; columns of a sequence restore it within each partition.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- its usual name
from pyspark.sql.types import DoubleType, FloatType, IntegerType, StructField, StructType

from lookup_core.errors import ErrorCode, InvalidRequest
from lookup_core.keys.canonical_keys import KEY_GROUPS
from spark_client.driver.input_columns import (
    InputColumn,
    InputColumns,
    ParsedOn,
    addressable,
    free_prefix,
)
from spark_client.driver.lookup_functions import HAS_ARROW_FUNCTIONS
from spark_client.driver.schemas import described_key
from spark_client.spark_types import key_field
from spark_client.transport.connections import SidecarAddress
from spark_client.worker.key_shards import SaltTask, shards_function


@dataclass(frozen=True, slots=True)
class KeyRepartition:
    """A function of a DataFrame, for `DataFrame.transform`."""

    address: SidecarAddress
    dimension: str
    on: ParsedOn | None  # None: the names of the dimension's key
    partitions: int | None  # None: `spark.sql.shuffle.partitions`
    sequence: tuple[str, ...] = ()  # columns that order the records of each partition

    def __call__(self, records: DataFrame) -> DataFrame:
        """The same rows, fields and metadata, in other partitions.

        Raises InvalidRequest for unknown columns, columns that are no keys, and a sequence of a
        stream; without `on` also BackendError or SidecarUnreachable.
        """
        if self.sequence and records.isStreaming:
            raise InvalidRequest(
                ErrorCode.BAD_REQUEST,
                "Spark does not sort streams, so sequence= needs the batches of a stream; apply"
                " repartition_for within foreachBatch, or leave sequence= out",
            )
        inputs = InputColumns(records)
        keys = self._keys(inputs)
        for key in keys:
            _check_key(key)
        count = self.partitions
        if count is None:
            usual = records.sparkSession.conf.get("spark.sql.shuffle.partitions")
            count = min(int(str(usual)), KEY_GROUPS)  # it has a default
        if not HAS_ARROW_FUNCTIONS:
            divided = divided_by_salt(inputs, [key.position for key in keys], count)
        else:
            shard = F.arrow_udf(shards_function(count), returnType="int")  # type: ignore[attr-defined]
            divided = records.repartitionById(count, shard(*(key.column for key in keys)))
        return in_sequence(divided, self.sequence)

    def _keys(self, inputs: InputColumns) -> list[InputColumn]:
        if self.on is not None:
            on = self.on
            computed = dict(
                zip(on.expressions, inputs.computed([*on.expressions.values()]), strict=True)
            )
            return [
                computed.get(position) or inputs.named(name)
                for position, name in enumerate(on.keys.columns)
            ]
        try:
            return [inputs.named(name) for name in described_key(self.address, self.dimension)]
        except InvalidRequest as error:
            error.add_remedy("the dimension's key has this name; name the records' with on=")
            raise


def _check_key(key: InputColumn) -> None:
    key_field(key.name, key.kind)
    if isinstance(key.kind, (FloatType, DoubleType)):
        kind = key.kind.simpleString()
        detail = f"column {key.name!r} is {kind}, which is no key to divide by; cast it"
        raise InvalidRequest(ErrorCode.KEY_TYPE, detail)


def in_sequence(records: DataFrame, names: Sequence[str]) -> DataFrame:
    """Sort each partition by these columns, NULLs first; by none, no sort."""
    if not names:
        return records
    inputs = InputColumns(records)
    return records.sortWithinPartitions(*(inputs.named(name).column for name in names))


def divided_by_salt(inputs: InputColumns, positions: Sequence[int], count: int) -> DataFrame:
    """Without `repartitionById`, by a column whose hash in Spark is the wanted partition."""
    records = inputs.records
    name = free_prefix("_salt", records.columns)
    schema = StructType([*records.schema.fields, StructField(name, IntegerType())])
    task = SaltTask(tuple(positions), count, len(records.columns))
    salted = addressable(inputs.projected()).mapInArrow(task, schema)
    return salted.repartition(count, name).drop(name)
