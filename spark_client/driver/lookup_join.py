"""Lookup joins and lookup functions on the driver: names, types and schemas of a DataFrame.

Looks up nothing; `lookup_task` does so in the Python workers.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, StructField, StructType

from lookup_core.errors import ErrorCode, InvalidRequest
from lookup_core.event_time.record_watermarks import is_event_time
from lookup_core.operator.as_of import is_moment
from lookup_core.protocol.frames import MAX_CHANNELS
from spark_client.driver.input_columns import (
    InputColumn,
    InputColumns,
    On,
    ParsedOn,
    addressable,
    only_in_jvm,
    parsed_on,
    quoted,
)
from spark_client.driver.lookup_functions import HAS_ARROW_FUNCTIONS
from spark_client.driver.options import (
    How,
    PassOptions,
    choice,
    dimension_name,
    distinct_names,
    flag,
    name_prefix,
    optional,
    record_column,
    schema_text_or_type,
    text,
)
from spark_client.driver.pass_function import by_function, is_function
from spark_client.driver.schemas import (
    added_fields,
    arrow_columns,
    as_struct,
    chosen_columns,
    described_columns,
    dimension_columns,
)
from spark_client.lookup_settings import (
    JoinKeys,
    JoinType,
    KeyColumn,
    LookupSettings,
    Via,
)
from spark_client.spark_types import arrow_type, key_field
from spark_client.transport.connections import SidecarAddress
from spark_client.worker.lookup_task import LookupJoinTask, LookupPass, LookupTarget
from spark_client.worker.output_columns import AddedPart

# {option: (test of the column's type, accepted types)}
_TIMES = {
    "event_time": (is_event_time, "a timestamp, or whole milliseconds since the epoch"),
    "as_of": (is_moment, "a timestamp or date"),
}


@dataclass(frozen=True, slots=True)
class LookupJoin:
    """One lookup, and a function of a DataFrame, for `DataFrame.transform`."""

    address: SidecarAddress
    dimension: str
    on: ParsedOn
    settings: LookupSettings
    options: PassOptions
    as_of: str | None = None
    columns: tuple[str, ...] | None = None  # the dimension's; None: all but its key
    schema: str | StructType | None = None  # None: the driver reads it from a sidecar
    prefix: str = ""
    status_column: str | None = None
    how: JoinType = JoinType.LEFT
    expands: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError for options that contradict each other."""
        if self.expands and not self.how.has_columns:
            raise ValueError(f"how={str(self.how)!r} adds no rows of the dimension; omit expand")
        if self.expands and self.columns == ():
            raise ValueError("expand needs at least one of the dimension's columns, not columns=[]")
        if self.expands and self.as_of is not None:
            raise ValueError("as_of selects one version of a key, so there is nothing to expand")
        LookupJoins((self,), self.options)  # raises ValueError, too
        if self.settings.wants_default and self.as_of is not None:
            raise ValueError(
                "a dimension with versions has no default row; with as_of, on_timeout and on_error"
                ' are "fail" or "null"'
            )

    def __call__(self, records: DataFrame) -> DataFrame:
        """The enriched DataFrame; as `LookupJoins`, with a single lookup."""
        return LookupJoins((self,), self.options)(records)

    def target(
        self,
        keys: JoinKeys,
        places: tuple[KeyColumn, ...],
        described: StructType,
        *,
        as_of: int | None,
    ) -> LookupTarget:
        """What a task looks up, by the places of the key columns in its input."""
        return LookupTarget(
            address=self.address,
            dimension=self.dimension,
            keys=keys,
            key_columns=places,
            settings=replace(self.settings, as_of=as_of),
            part=AddedPart(
                arrow_columns(described), self.how, self.prefix, self.status_column, self.expands
            ),
        )

    def described(self, keys: JoinKeys, kinds: Sequence[DataType]) -> StructType:
        """The dimension's columns, for keys of these names and types."""
        fields = [key_field(name, kind) for name, kind in zip(keys.names, kinds, strict=True)]
        if self.schema is not None:
            return chosen_columns(as_struct("schema", self.schema), self.columns)
        needs = self.settings.needs(is_as_of=self.as_of is not None, expands=self.expands)
        with keys.named_in_refusals():
            described = described_columns(
                self.address,
                self.dimension,
                columns=self.columns,
                key=pa.schema(fields, metadata=keys.metadata),
                needs=needs,
            )
        return dimension_columns(described)


@dataclass(frozen=True, slots=True)
class JoinArguments:
    """The options of a lookup that are for a join only, as `lookup_join` gets them."""

    dimension: str
    on: On
    as_of: str | None
    columns: Sequence[str] | None
    schema: str | StructType | None
    prefix: str
    status_column: str | None
    how: How
    expand: bool

    def parsed(
        self, address: SidecarAddress, settings: LookupSettings, options: PassOptions
    ) -> LookupJoin:
        """The lookup; ValueError for a wrong option, and for options that contradict."""
        how = choice("how", self.how, JoinType)
        columns = () if self.columns is None and not how.has_columns else self.columns
        return LookupJoin(
            address=address,
            dimension=dimension_name(self.dimension),
            on=parsed_on(self.on),
            settings=settings,
            options=options,
            as_of=optional(record_column, "as_of", self.as_of),
            columns=optional(distinct_names, "columns", columns),
            schema=optional(schema_text_or_type, "schema", self.schema),
            prefix=name_prefix(self.prefix),
            status_column=optional(_new_column, "status_column", self.status_column),
            how=how,
            expands=flag("expand", self.expand),
        )


def _new_column(option: str, value: object) -> str:
    return text(option, value, accepted="the name of a new column")


@dataclass(frozen=True, slots=True)
class LookupJoins:
    """Several lookups in one pass: a function of a DataFrame, for `DataFrame.transform`."""

    lookups: tuple[LookupJoin, ...]
    options: PassOptions

    def __post_init__(self) -> None:
        self.options.check()
        if self.options.timeout is not None:
            self._check_timeout(self.options.timeout)
        if self.options.via is Via.UDF and any(each.expands for each in self.lookups):
            raise ValueError("via='udf' cannot multiply records; with expand use via='batch'")
        most = max(Counter(each.address for each in self.lookups).values())
        if most > MAX_CHANNELS:
            raise ValueError(
                f"lookups has {most} of one sidecar, and a pass at most {MAX_CHANNELS}; divide them"
                " among several lookup_joins, one after the other"
            )

    def __call__(self, records: DataFrame) -> DataFrame:
        """The enriched DataFrame. Without `schema` the driver reads the dimensions' columns.

        Raises InvalidRequest for names and types that do not fit, ValueError for a retry after
        the default timeout, SidecarUnreachable if the driver has neither a sidecar nor `schema`.
        """
        self._check_timeout(self.options.settings(None).timeout_s)
        inputs = InputColumns(records)
        sources = _KeySources(inputs, self.lookups)
        targets, added, origins = [], [], []  # an origin is the dimension of an added column
        for number, lookup in enumerate(self.lookups):
            keys = sources.keys_of(number)
            join_keys = lookup.on.keys
            if not join_keys.are_exact:
                join_keys = replace(join_keys, names=tuple(key.name for key in keys))
            described = lookup.described(join_keys, [key.kind for key in keys])
            as_of = _time_position(inputs, "as_of", column=lookup.as_of)
            places = tuple(key.place for key in keys)
            targets.append(lookup.target(join_keys, places, described, as_of=as_of))
            offered = described if lookup.how.has_columns else StructType()
            fields = added_fields(offered, prefix=lookup.prefix, status_column=lookup.status_column)
            added += fields
            origins += [lookup.dimension] * len(fields)
            sources.add_columns(number, offered)
        inputs.names.check_with([each.name for each in added], origins)
        options = self.options
        event_time = _time_position(inputs, "event_time", column=options.event_time)
        lookups = LookupPass(targets, options.settings(event_time))
        if HAS_ARROW_FUNCTIONS and only_in_jvm(records):
            lookups = lookups.in_order()
        elif self._takes_batches(len(records.columns)):
            return _by_batches(records, lookups, inputs=inputs, added=added)
        return by_function(inputs.projected(), lookups, added, names=records.columns)

    def _takes_batches(self, columns: int) -> bool:
        """Whether records of this many columns pass through Python, and not only their keys."""
        expands = any(lookup.expands for lookup in self.lookups)
        return expands or not is_function(self.options.via, self.options.mode, columns=columns)

    def _check_timeout(self, timeout_s: float) -> None:
        for lookup in self.lookups:
            lookup.settings.check_timeout(timeout_s)


@dataclass(frozen=True, slots=True)
class _KeySource:
    place: KeyColumn
    name: str
    kind: DataType


class _KeySources:
    """The columns that keys may have: those of the input, then those of earlier lookups."""

    def __init__(self, inputs: InputColumns, lookups: Sequence[LookupJoin]) -> None:
        self._inputs = inputs
        self._lookups = lookups
        found = inputs.computed([each for one in lookups for each in one.on.expressions.values()])
        places = [(number, at) for number, one in enumerate(lookups) for at in one.on.expressions]
        self._computed = dict(zip(places, found, strict=True))
        self._added: dict[str, _KeySource] = {}
        self._expanded: set[str] = set()

    def add_columns(self, number: int, columns: StructType) -> None:
        """Add the columns of a lookup."""
        lookup = self._lookups[number]
        for position, each in enumerate(columns):
            place, name = KeyColumn(position, number), lookup.prefix + each.name
            self._added[name] = _KeySource(place, name, each.dataType)
            if lookup.expands:
                self._expanded.add(name)

    def keys_of(self, lookup: int) -> list[_KeySource]:
        """The key of a lookup.

        Raises InvalidRequest for a name that no column has, and for a column of a lookup that
        expands.
        """
        return [
            _input_column(self._computed[lookup, position])
            if (lookup, position) in self._computed
            else self._named(lookup, name)
            for position, name in enumerate(self._lookups[lookup].on.keys.columns)
        ]

    def _named(self, lookup: int, name: str) -> _KeySource:
        for known, column in self._added.items():
            if self._inputs.names.are_same(name, known):
                if known in self._expanded:
                    raise InvalidRequest(
                        ErrorCode.BAD_REQUEST,
                        f"key column {known!r} has several rows for a record, as its lookup has"
                        " expand=True; chain a second lookup_join for this key:"
                        " records.transform(first).transform(second)",
                    )
                return replace(column, name=name)
        try:
            return _input_column(self._inputs.named(name, *self._added))
        except InvalidRequest as error:
            self._check_order(lookup, name)
            if "(" not in name:
                raise
            detail = f"{error.detail}; for an expression write on=F.expr({name!r})"
            raise InvalidRequest(error.code, detail) from error

    def _check_order(self, lookup: int, name: str) -> None:
        """Raise InvalidRequest if a later lookup adds the column."""
        for later in self._lookups[lookup + 1 :]:
            if not later.how.has_columns:
                continue
            names = later.described(JoinKeys((), ()), []).names
            added = (later.prefix + each for each in names)
            if any(self._inputs.names.are_same(each, name) for each in added):
                detail = (
                    f"key column {name!r} comes from dimension {later.dimension!r}, which is later"
                    f" in the list; move that lookup before {self._lookups[lookup].dimension!r}"
                )
                raise InvalidRequest(ErrorCode.UNKNOWN_COLUMN, detail)


def _input_column(column: InputColumn) -> _KeySource:
    return _KeySource(KeyColumn(column.position), column.name, column.kind)


def _by_batches(
    records: DataFrame, lookups: LookupPass, *, inputs: InputColumns, added: Sequence[StructField]
) -> DataFrame:
    # A batch without columns has no row count, so such records keep the hidden ones until then.
    kept = records if records.columns else inputs.projected()
    task = LookupJoinTask(lookups, inputs.width or None)
    schema = StructType([*kept.schema, *added])
    enriched = addressable(inputs.projected()).mapInArrow(task, schema)
    return enriched if records.columns else enriched.select([quoted(f.name) for f in added])


def _time_position(inputs: InputColumns, option: str, *, column: str | None) -> int | None:
    if column is None:
        return None
    is_time, accepted = _TIMES[option]
    found = inputs.named(column)
    if not is_time(arrow_type(found.kind)):
        detail = f"{option} {column!r} is {found.kind.simpleString()}; it must be {accepted}"
        raise InvalidRequest(ErrorCode.TYPE, detail)
    return found.position
