"""Lookup joins and lookup functions on the driver: names, types and schemas of a DataFrame.

Looks up nothing; `lookup_task` does so in the Python workers.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- its usual name
from pyspark.sql.types import StructType, _parse_datatype_string

from lookup_core.errors import ErrorCode, InvalidRequest
from lookup_core.operator.as_of import is_moment
from spark_client.lookup_operator import is_event_time
from spark_client.lookup_settings import JoinKeys, LookupSettings
from spark_client.lookup_task import LookupFunctionTask, LookupJoinTask, LookupTarget
from spark_client.pandas_function import LookupFunction, pandas_function
from spark_client.schemas import (
    arrow_columns,
    arrow_type,
    chosen_columns,
    described_columns,
    dimension_columns,
    key_field,
    output_schema,
)
from spark_client.transport.connections import Address


@dataclass(frozen=True, slots=True)
class AddedColumns:
    """The columns that a join adds to its records, as the user gave them."""

    columns: tuple[str, ...] | None  # of the dimension; None: all but its key
    schema: str | StructType | None  # None: the driver reads it from a sidecar
    prefix: str
    status_column: str | None


@dataclass(frozen=True, slots=True)
class LookupJoin:
    """A function of a DataFrame, for `DataFrame.transform`."""

    address: Address
    dimension: str
    keys: JoinKeys
    added: AddedColumns
    event_time: str | None
    as_of: str | None
    settings: LookupSettings

    def __call__(self, records: DataFrame) -> DataFrame:
        """The enriched DataFrame. Without `schema` the driver reads the dimension's columns.

        Raises InvalidRequest for names and types that do not fit, SidecarUnreachable if the
        driver has no sidecar and no `schema` was given.
        """
        names = column_names(records)
        positions = tuple(names.position(name) for name in self.keys.columns)
        columns = self._columns(records.schema, positions)
        prefix, status_column = self.added.prefix, self.added.status_column
        schema = output_schema(records.schema, columns, prefix=prefix, status_column=status_column)
        names.check_with(schema.names[len(records.columns) :])
        target = LookupTarget(
            address=self.address,
            dimension=self.dimension,
            columns=arrow_columns(columns),
            keys=self.keys,
            key_columns=positions,
            settings=replace(
                self.settings,
                event_time=_time_position(
                    records.schema, names, "event_time", column=self.event_time
                ),
                as_of=_time_position(records.schema, names, "as_of", column=self.as_of),
            ),
        )
        task = LookupJoinTask(target, prefix, status_column)
        return addressable(records).mapInArrow(task, schema)

    def _columns(self, records: StructType, positions: Sequence[int]) -> StructType:
        kinds = [records[position].dataType for position in positions]
        fields = [key_field(name, kind) for name, kind in zip(self.keys.names, kinds, strict=True)]
        if self.added.schema is not None:
            return chosen_columns(as_struct(self.added.schema), self.added.columns)
        described = described_columns(
            self.address,
            self.dimension,
            columns=self.added.columns,
            key=pa.schema(fields, metadata=self.keys.metadata),
            is_as_of=self.as_of is not None,
        )
        return dimension_columns(described)


# {option: (test of the column's type, accepted types)}
_TIMES = {
    "event_time": (is_event_time, "a timestamp, or whole milliseconds since the epoch"),
    "as_of": (is_moment, "a timestamp or date"),
}


def _time_position(
    records: StructType, names: "ColumnNames", option: str, *, column: str | None
) -> int | None:
    if column is None:
        return None
    is_time, accepted = _TIMES[option]
    position = names.position(column)
    kind = records[position].dataType
    if not is_time(arrow_type(kind)):
        detail = f"{option} {column!r} is {kind.simpleString()}; it must be {accepted}"
        raise InvalidRequest(ErrorCode.TYPE, detail)
    return position


def lookup_udf(
    address: Address, dimension: str, *, columns: StructType, settings: LookupSettings
) -> LookupFunction:
    """A function of the key's columns, in the order of the dimension's key."""
    task = LookupFunctionTask(address, dimension, arrow_columns(columns), settings)
    name = f"lookup_{dimension}"  # shown in query plans
    if not hasattr(F, "arrow_udf"):  # PySpark 3.5 and 4.0
        return pandas_function(task, columns, name)

    def lookup(keys: Iterator[pa.Array]) -> Iterator[pa.Array]:
        return task(keys)

    lookup.__name__ = name
    return F.arrow_udf(lookup, returnType=columns)  # its kind stands in the type hints


class ColumnNames:
    """The columns of the records, in order."""

    def __init__(self, names: Sequence[str], *, is_case_sensitive: bool) -> None:
        """Raises InvalidRequest if Spark cannot distinguish two of the names."""
        self._names = tuple(names)
        self._is_case_sensitive = is_case_sensitive
        self._check_distinct(self._names, "rename one of them before the lookup")

    def position(self, name: str) -> int:
        """The position of a column; raises InvalidRequest that lists the columns."""
        known = [self._folded(each) for each in self._names]
        if self._folded(name) not in known:
            raise InvalidRequest(
                ErrorCode.UNKNOWN_COLUMN,
                f"the records have no column {name!r}; they have {', '.join(self._names)}",
            )
        return known.index(self._folded(name))

    def check_with(self, added: Sequence[str]) -> None:
        """Raise InvalidRequest if an added name exists already, or is added twice."""
        self._check_distinct((*self._names, *added), "choose another prefix or status_column")

    def _check_distinct(self, names: Sequence[str], remedy: str) -> None:
        counts = Counter(self._folded(name) for name in names)
        clashing = sorted({name for name in names if counts[self._folded(name)] > 1})
        if clashing:
            detail = f"columns of the same name: {', '.join(clashing)}; {remedy}"
            raise InvalidRequest(ErrorCode.BAD_REQUEST, detail)

    def _folded(self, name: str) -> str:
        return name if self._is_case_sensitive else name.lower()


def column_names(records: DataFrame) -> ColumnNames:
    """The columns of a DataFrame, with the case sensitivity of its session."""
    is_case_sensitive = records.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
    return ColumnNames(records.columns, is_case_sensitive=is_case_sensitive)


def as_struct(schema: str | StructType) -> StructType:
    """A schema given as DDL, which needs a Spark session, or as it is; or ValueError."""
    parse = getattr(StructType, "fromDDL", _parse_datatype_string)  # PySpark 3.5 has none
    parsed = parse(schema) if isinstance(schema, str) else schema
    if not isinstance(parsed, StructType):
        raise ValueError(f"schema= must list columns, not {schema!r}")  # noqa: TRY004 -- as documented
    return parsed


def addressable(records: DataFrame) -> DataFrame:
    """The records as `mapInArrow` takes them: it reads dots and backticks in names as a path."""
    if not any(mark in name for name in records.columns for mark in ".`"):
        return records
    return records.toDF(*(f"c{position}" for position in range(len(records.columns))))
