"""Repartitioning of a DataFrame by key group: equal keys come into the same partition.

A shuffle keeps no order of the rows; columns of a sequence restore it within each partition.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- its usual name
from pyspark.sql.types import DoubleType, FloatType, IntegerType, StructField, StructType

from lookup_core.errors import ErrorCode, InvalidRequest
from lookup_core.keys.canonical_keys import KEY_GROUPS, key_groups, shards_of_groups
from spark_client.input_columns import InputColumn, InputColumns, ParsedOn, addressable
from spark_client.schemas import described_key
from spark_client.spark_types import key_field
from spark_client.transport.connections import Address


@dataclass(frozen=True, slots=True)
class KeyRepartition:
    """A function of a DataFrame, for `DataFrame.transform`."""

    address: Address
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
            assert usual is not None  # it has a default
            count = min(int(usual), KEY_GROUPS)
        if not hasattr(F, "arrow_udf"):  # PySpark 3.5 and 4.0
            divided = divided_by_salt(inputs, [key.position for key in keys], count)
        else:
            shard = F.arrow_udf(_shards(count), returnType="int")
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


def _shards(count: int) -> Callable[..., pa.Array]:
    def shards(*keys: pa.Array) -> pa.Array:
        return pa.array(_shards_of(keys, count))

    return shards


def _shards_of(keys: Sequence[pa.Array], count: int) -> npt.NDArray[np.int32]:
    batch = pa.record_batch(list(keys), [f"key {index}" for index in range(len(keys))])
    return shards_of_groups(key_groups(batch), count)


def divided_by_salt(inputs: InputColumns, positions: Sequence[int], count: int) -> DataFrame:
    """Without `repartitionById`, by a column whose hash in Spark is the wanted partition."""
    records, name = inputs.records, "_salt"
    while name.lower() in {column.lower() for column in records.columns}:
        name = f"_{name}"
    schema = StructType([*records.schema.fields, StructField(name, IntegerType())])
    task = _Salted(tuple(positions), count, len(records.columns))
    salted = addressable(inputs.projected()).mapInArrow(task, schema)
    return salted.repartition(count, name).drop(name)


@dataclass(frozen=True, slots=True)
class _Salted:
    """The function that `mapInArrow` calls: adds the salt of each record's shard."""

    positions: tuple[int, ...]  # of the key's columns
    count: int
    width: int  # columns of the records, before hidden ones

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        salts = shard_salts(self.count)
        for batch in batches:
            shards = _shards_of([batch.column(index) for index in self.positions], self.count)
            columns = [*batch.columns[: self.width], pa.array(salts[shards])]
            yield pa.record_batch(columns, [*batch.schema.names[: self.width], "salt"])


def shard_salts(count: int) -> npt.NDArray[np.int32]:
    """[count] For each shard an integer that Spark's hash partitioning maps to it."""
    salts = np.full(count, -1, np.int32)
    start = 0
    while (salts < 0).any():
        tried = np.arange(start, start + 16 * count, dtype=np.int32)
        start += len(tried)
        salts[spark_hashes(tried) % count] = tried  # pmod: the remainder has the divisor's sign
    return salts


_SEED = np.uint32(42)


def spark_hashes(values: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """The hashes of int columns in Spark: Murmur3, 32 bits, of four bytes."""
    mixed = _rotated(values.astype(np.uint32) * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    mixed = _rotated(mixed ^ _SEED, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    mixed ^= np.uint32(4)  # the number of bytes
    mixed = (mixed ^ mixed >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    mixed = (mixed ^ mixed >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    return (mixed ^ mixed >> np.uint32(16)).view(np.int32)


def _rotated(values: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.uint32]:
    return values << np.uint32(bits) | values >> np.uint32(32 - bits)
