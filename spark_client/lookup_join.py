"""Lookup joins and lookup functions on the driver: names, types and schemas of a DataFrame.

Looks up nothing; `lookup_task` does so in the Python workers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import DataType, StructField, StructType, _parse_datatype_string

from lookup_core.errors import ErrorCode, InvalidRequest
from lookup_core.operator.as_of import is_moment
from spark_client.call_options import PassOptions
from spark_client.input_columns import InputColumn, InputColumns, addressable
from spark_client.lookup_operator import is_event_time
from spark_client.lookup_settings import (
    JoinKeys,
    JoinType,
    KeyColumn,
    LookupSettings,
    PassSettings,
    Via,
)
from spark_client.lookup_task import (
    LookupFunctionTask,
    LookupJoinTask,
    LookupPass,
    LookupTarget,
)
from spark_client.output_columns import AddedPart
from spark_client.pandas_function import LookupFunction, pandas_function
from spark_client.pass_function import (
    HAS_ARROW_FUNCTIONS,
    arrow_function,
    by_function,
    is_function,
)
from spark_client.schemas import (
    added_fields,
    arrow_columns,
    arrow_type,
    chosen_columns,
    described_columns,
    dimension_columns,
    key_field,
)
from spark_client.transport.connections import Address


@dataclass(frozen=True, slots=True)
class AddedColumns:
    """The columns that a join adds to its records, as the user gave them."""

    columns: tuple[str, ...] | None  # of the dimension; None: all but its key
    schema: str | StructType | None  # None: the driver reads it from a sidecar
    prefix: str
    status_column: str | None
    how: JoinType = JoinType.LEFT
    expands: bool = False

    def part(self, columns: StructType) -> AddedPart:
        """What the output gets, with these columns of the dimension."""
        added = arrow_columns(columns)
        return AddedPart(added, self.how, self.prefix, self.status_column, self.expands)

    def fields(self, columns: StructType) -> list[StructField]:
        """The fields of the output, as those of the `part`."""
        offered = columns if self.how.has_columns else StructType()
        return added_fields(offered, prefix=self.prefix, status_column=self.status_column)


@dataclass(frozen=True, slots=True)
class LookupJoin:
    """One lookup, and a function of a DataFrame, for `DataFrame.transform`."""

    address: Address
    dimension: str
    keys: JoinKeys
    added: AddedColumns
    as_of: str | None
    settings: LookupSettings
    options: PassOptions
    # {position in `keys`: Column}; compared by their texts in `keys`
    expressions: Mapping[int, Column] = field(default_factory=dict, compare=False)

    def check(self) -> None:
        """Raise ValueError for options that contradict each other."""
        added, is_as_of = self.added, self.as_of is not None
        if added.expands and not added.how.has_columns:
            raise ValueError(f"how={str(added.how)!r} adds no rows of the dimension; omit expand")
        if added.expands and added.columns == ():
            raise ValueError("expand needs at least one of the dimension's columns, not columns=[]")
        if added.expands and is_as_of:
            raise ValueError("as_of selects one version of a key, so there is nothing to expand")
        LookupJoins((self,), self.options)  # raises ValueError, too
        if self.settings.wants_default and is_as_of:
            raise ValueError(
                "a dimension with versions has no default row; with as_of, on_timeout and on_error"
                ' are "fail" or "null"'
            )

    def __call__(self, records: DataFrame) -> DataFrame:
        """The enriched DataFrame; as `LookupJoins`, with a single lookup."""
        return LookupJoins((self,), self.options)(records)

    def described(self, keys: JoinKeys, kinds: Sequence[DataType]) -> StructType:
        """The dimension's columns, for keys of these names and types."""
        fields = [key_field(name, kind) for name, kind in zip(keys.names, kinds, strict=True)]
        if self.added.schema is not None:
            return chosen_columns(as_struct(self.added.schema), self.added.columns)
        described = described_columns(
            self.address,
            self.dimension,
            columns=self.added.columns,
            key=pa.schema(fields, metadata=keys.metadata),
            needs=self.settings.needs(is_as_of=self.as_of is not None, expands=self.added.expands),
        )
        return dimension_columns(described)


@dataclass(frozen=True, slots=True)
class LookupJoins:
    """Several lookups in one pass: a function of a DataFrame, for `DataFrame.transform`."""

    lookups: tuple[LookupJoin, ...]
    options: PassOptions

    def __post_init__(self) -> None:
        if self.options.via is Via.UDF and any(each.added.expands for each in self.lookups):
            raise ValueError("via='udf' gives one record for each; use via='batch' with expand")

    def __call__(self, records: DataFrame) -> DataFrame:
        """The enriched DataFrame. Without `schema` the driver reads the dimensions' columns.

        Raises InvalidRequest for names and types that do not fit, SidecarUnreachable if the
        driver has no sidecar and no `schema` was given.
        """
        inputs = InputColumns(records)
        columns = _Columns(inputs, self.lookups)
        targets, added = [], []
        for number, lookup in enumerate(self.lookups):
            keys = columns.keys_of(number)
            join_keys = lookup.keys
            if not join_keys.are_exact:
                join_keys = replace(join_keys, names=tuple(key.name for key in keys))
            described = lookup.described(join_keys, [key.kind for key in keys])
            as_of = _time_position(inputs, "as_of", column=lookup.as_of)
            targets.append(
                LookupTarget(
                    address=lookup.address,
                    dimension=lookup.dimension,
                    keys=join_keys,
                    key_columns=tuple(key.place for key in keys),
                    settings=replace(lookup.settings, as_of=as_of),
                    part=lookup.added.part(described),
                )
            )
            added += lookup.added.fields(described)
            if lookup.added.how.has_columns:
                columns.add(number, described, lookup.added)
        inputs.names.check_with([each.name for each in added])
        options = self.options
        event_time = _time_position(inputs, "event_time", column=options.event_time)
        lookups = LookupPass(targets, options.settings(event_time))
        expands = any(lookup.added.expands for lookup in self.lookups)
        if not expands and is_function(options.via, options.mode, columns=len(records.columns)):
            return by_function(inputs.projected(), lookups, added, names=records.columns)
        schema = StructType([*records.schema, *added])
        task = LookupJoinTask(lookups, inputs.width)
        return addressable(inputs.projected()).mapInArrow(task, schema)


@dataclass(frozen=True, slots=True)
class _Column:
    place: KeyColumn
    name: str
    kind: DataType


class _Columns:
    """The columns that keys may have: those of the input, then those of earlier lookups."""

    def __init__(self, inputs: InputColumns, lookups: Sequence[LookupJoin]) -> None:
        self._inputs = inputs
        self._lookups = lookups
        found = inputs.computed([each for one in lookups for each in one.expressions.values()])
        places = [(number, at) for number, one in enumerate(lookups) for at in one.expressions]
        self._computed = dict(zip(places, found, strict=True))
        self._added: dict[str, _Column] = {}
        self._multiplied: set[str] = set()  # of lookups that expand

    def add(self, lookup: int, columns: StructType, added: AddedColumns) -> None:
        """Add the columns of a lookup."""
        for position, each in enumerate(columns):
            place, name = KeyColumn(position, lookup), added.prefix + each.name
            self._added[name] = _Column(place, name, each.dataType)
            if added.expands:
                self._multiplied.add(name)

    def keys_of(self, lookup: int) -> list[_Column]:
        """The key of a lookup.

        Raises InvalidRequest for a name that no column has, and for a column of a lookup that
        expands.
        """
        return [
            _input_column(self._computed[lookup, position])
            if (lookup, position) in self._computed
            else self._named(name)
            for position, name in enumerate(self._lookups[lookup].keys.columns)
        ]

    def _named(self, name: str) -> _Column:
        for known, column in self._added.items():
            if self._inputs.names.are_same(name, known):
                if known in self._multiplied:
                    raise InvalidRequest(
                        ErrorCode.BAD_REQUEST,
                        f"key column {known!r} has several rows for a record, as its lookup has"
                        " expand=True; chain a second lookup_join for this key:"
                        " records.transform(first).transform(second)",
                    )
                return replace(column, name=name)
        return _input_column(self._inputs.named(name, *self._added))


def _input_column(column: InputColumn) -> _Column:
    return _Column(KeyColumn(column.position), column.name, column.kind)


# {option: (test of the column's type, accepted types)}
_TIMES = {
    "event_time": (is_event_time, "a timestamp, or whole milliseconds since the epoch"),
    "as_of": (is_moment, "a timestamp or date"),
}


def _time_position(inputs: InputColumns, option: str, *, column: str | None) -> int | None:
    if column is None:
        return None
    is_time, accepted = _TIMES[option]
    found = inputs.named(column)
    if not is_time(arrow_type(found.kind)):
        detail = f"{option} {column!r} is {found.kind.simpleString()}; it must be {accepted}"
        raise InvalidRequest(ErrorCode.TYPE, detail)
    return found.position


def lookup_udf(
    address: Address,
    dimension: str,
    *,
    columns: StructType,
    lookup: LookupSettings,
    settings: PassSettings,
    is_deterministic: bool,
) -> LookupFunction:
    """A function of the key's columns, in the order of the dimension's key."""
    task = LookupFunctionTask(address, dimension, arrow_columns(columns), lookup, settings)
    name = f"lookup_{dimension}"  # shown in query plans
    make = arrow_function if HAS_ARROW_FUNCTIONS else pandas_function
    function = make(task, columns, name)
    return function if is_deterministic else function.asNondeterministic()  # type: ignore[attr-defined]


def as_struct(schema: str | StructType) -> StructType:
    """A schema given as DDL, which needs a Spark session, or as it is; or ValueError."""
    parse = getattr(StructType, "fromDDL", _parse_datatype_string)  # PySpark 3.5 has none
    parsed = parse(schema) if isinstance(schema, str) else schema
    if not isinstance(parsed, StructType):
        raise ValueError(f"schema= must list columns, not {schema!r}")  # noqa: TRY004 -- as documented
    return parsed
