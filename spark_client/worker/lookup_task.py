"""Task of one partition in the Python worker: a picklable function of record batches."""

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import pyarrow as pa
from pyarrow import types
from pyspark import TaskContext

from lookup_core.errors import ErrorCode, InvalidRequest, of_dimension
from lookup_core.protocol.client_channel import ChannelRequest, ClientChannel
from lookup_core.protocol.frames import TraceParent
from lookup_core.type_texts import type_text
from spark_client.lookup_settings import (
    JoinKeys,
    KeyColumn,
    LookupSettings,
    OutputMode,
    PassSettings,
)
from spark_client.spark_types import check_types
from spark_client.transport.connections import (
    ANY_KEY,
    SidecarAddress,
    connections,
    described_channel,
)
from spark_client.worker.as_of import (
    AsOfPlan,
    list_columns,
    single_columns,
    version_pick,
)
from spark_client.worker.batch_sizes import counted, in_sizes
from spark_client.worker.input_thread import InputThread, WakeUp
from spark_client.worker.lookup_operator import LookupOperator
from spark_client.worker.lookup_plan import LookupPlan
from spark_client.worker.output_columns import (
    AddedOutput,
    AddedPart,
    Output,
    StructOutput,
    column_casts,
    joined_output,
)


@dataclass(frozen=True, slots=True)
class LookupTarget:
    """One lookup of a pass: the dimension, the key's columns, and what the output gets."""

    address: SidecarAddress
    dimension: str
    keys: JoinKeys
    key_columns: tuple[KeyColumn, ...]
    settings: LookupSettings
    part: AddedPart

    def request(self, key: pa.Schema) -> ChannelRequest:
        """The channel for keys of this schema."""
        settings, is_as_of = self.settings, self.settings.as_of is not None
        is_later = any(column.lookup is not None for column in self.key_columns)
        return ChannelRequest(
            self.dimension,
            tuple(self.part.columns.names),
            task_origin(),
            key,
            is_as_of,
            task_trace(settings.trace),
            # Without the default row, no NULL in the column of another lookup could be answered.
            wants_default=settings.wants_default or (is_later and not is_as_of),
            options=settings.options,
        )

    def plan(self, key: pa.Schema, channel: ClientChannel) -> LookupPlan:
        """The plan over an open channel; raises InvalidRequest if the dimension does not fit."""
        columns, column = self.part.columns, self.settings.as_of
        needs = self.settings.needs(is_as_of=column is not None, expands=self.part.expands)
        needs.check(channel, self.dimension)
        versions = channel.versions
        sent, wanted, offered = channel.columns, columns, channel.columns
        if needs.has_lists:
            wanted, offered = list_columns(columns, sent), single_columns(sent)
        casts = column_casts(sent, wanted, dimension=self.dimension)
        check_types(columns, offered, dimension=self.dimension)
        as_of = None
        if column is not None and versions is not None:
            as_of = AsOfPlan(column, version_pick(casts.target, columns, versions))
        plan = LookupPlan(
            dimension=self.dimension,
            key_columns=self.key_columns,
            key=key,
            casts=casts,
            settings=self.settings,
            as_of=as_of,
            expands=self.part.expands,
        )
        default = channel.default
        return plan if default is None else replace(plan, default=plan.rows(default))


@dataclass(frozen=True, slots=True)
class LookupPass:
    """The lookups of one partition's records."""

    targets: Sequence[LookupTarget]
    settings: PassSettings

    @property
    def inputs(self) -> tuple[int, ...]:
        """The positions of the records' columns that the lookups need, in order."""
        found = [self.settings.event_time]
        for target in self.targets:
            found.append(target.settings.as_of)
            found += [column.position for column in target.key_columns if column.lookup is None]
        return tuple(sorted({position for position in found if position is not None}))

    def in_order(self) -> "LookupPass":
        """The same lookups in the mode of functions, which keeps the order of all records."""
        return replace(self, settings=replace(self.settings, mode=OutputMode.ORDERED))

    def over_inputs(self) -> "LookupPass":
        """The same lookups for records that consist of the `inputs` only."""
        places: dict[int | None, int] = {
            position: place for place, position in enumerate(self.inputs)
        }
        targets = []
        for target in self.targets:
            keys = tuple(
                replace(key, position=places[key.position]) if key.lookup is None else key
                for key in target.key_columns
            )
            settings = replace(target.settings, as_of=places.get(target.settings.as_of))
            targets.append(replace(target, key_columns=keys, settings=settings))
        event_time = places.get(self.settings.event_time)
        return LookupPass(targets, replace(self.settings, event_time=event_time))

    def enriched(
        self, batches: Iterator[pa.RecordBatch], output_of: Callable[[pa.Schema], Output]
    ) -> Generator[pa.RecordBatch]:
        """The output of a partition; one without records opens no connection.

        `output_of` takes the schema of the records. Raises InvalidRequest, BackendError,
        SidecarUnreachable or LookupFailed. Closing the generator cancels the open lookups.
        """
        for batch in batches:
            output = output_of(batch.schema)
            if batch.num_rows:
                yield from self._looked_up(batch, batches, output)
                return
            yield output.empty()

    def _looked_up(
        self, first: pa.RecordBatch, others: Iterator[pa.RecordBatch], output: Output
    ) -> Iterator[pa.RecordBatch]:
        wake_up, settings = WakeUp(), self.settings
        batches = InputThread(
            wake_up, most_rows=settings.pooled_rows, most_bytes=settings.pooled_bytes
        )
        with batches.reading(chain([first], others)):
            operator = self._operator(first.schema, output, wake_up)
            with closing(operator):  # also after LIMIT, or a failure downstream
                yield from operator.enriched(batches)

    def _operator(self, records: pa.Schema, output: Output, wake_up: WakeUp) -> LookupOperator:
        keys = [self._key(target, records) for target in self.targets]
        with ExitStack() as stack:
            channels = []
            for target, key in zip(self.targets, keys, strict=True):
                connection = connections.to(target.address)
                channels.append(connection.begin(target.request(key), wake=wake_up.set))
                stack.callback(channels[-1].close)
            for target, channel in zip(self.targets, channels, strict=True):
                with target.keys.named_in_refusals():
                    channel.wait_until_open()
            plans = [
                target.plan(key, channel.channel)
                for target, key, channel in zip(self.targets, keys, channels, strict=True)
            ]
            operator = LookupOperator(
                plans, channels, output, settings=self.settings, wake_up=wake_up
            )
            stack.pop_all()
        return operator

    def _key(self, target: LookupTarget, records: pa.Schema) -> pa.Schema:
        fields = []
        for name, column in zip(target.keys.names, target.key_columns, strict=True):
            source = records
            if column.lookup is not None:
                source = self.targets[column.lookup].part.columns
            fields.append(pa.field(name, source.field(column.position).type))
        return pa.schema(fields, metadata=target.keys.metadata)


@dataclass(frozen=True, slots=True)
class LookupJoinTask:
    """The function that `mapInArrow` calls."""

    lookups: LookupPass
    width: int | None = None  # columns of the records, before hidden ones; None: all

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Enrich a partition; all output batches have one schema."""
        parts = [target.part for target in self.lookups.targets]
        return self.lookups.enriched(
            batches, lambda records: joined_output(records, parts, width=self.width)
        )


@dataclass(frozen=True, slots=True)
class LookupFunctionTask:
    """The function of an iterator of Arrow arrays that `arrow_udf` calls."""

    address: SidecarAddress
    dimension: str
    columns: pa.Schema
    lookup: LookupSettings
    settings: PassSettings

    def __call__(self, arrays: Iterator[pa.Array | tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        """A struct for each input row, in the same order; NULL for a key that is NULL."""
        sizes: deque[int] = deque()
        batches = counted(map(self._key_columns, arrays), sizes)
        first = next(batches, None)
        if first is None:
            return
        target = self._target(first.schema.names)
        if any(types.is_null(kind) for kind in first.schema.types):  # as of `lookup_x(NULL)`
            row = _row_of_nulls(target)
            for keys in chain([first], batches):
                yield row.take(pa.array(np.zeros(keys.num_rows, np.int32)))
            return
        lookups, output = LookupPass([target], self.settings), StructOutput(self.columns)
        with closing(lookups.enriched(chain([first], batches), lambda _: output)) as structs:
            yield from in_sizes(structs, sizes)

    def _key_columns(self, parts: pa.Array | tuple[pa.Array, ...]) -> pa.RecordBatch:
        arguments = _arguments(parts)
        fault = _fault(arguments.schema)
        if fault is not None:
            raise InvalidRequest(ErrorCode.KEY_TYPE, of_dimension(self.dimension, fault))
        return arguments

    def _target(self, names: Sequence[str]) -> LookupTarget:
        return LookupTarget(
            address=self.address,
            dimension=self.dimension,
            keys=JoinKeys(tuple(names), tuple(names)),
            key_columns=tuple(KeyColumn(position) for position in range(len(names))),
            settings=self.lookup,
            part=AddedPart(self.columns),
        )


@dataclass(frozen=True, slots=True)
class LookupPassTask:
    """The function of an iterator of Arrow arrays that `arrow_udf` calls for a whole pass."""

    lookups: LookupPass  # over its inputs

    def __call__(self, arrays: Iterator[pa.Array | tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        """The added columns for each input row, as `AddedOutput`, in the same order."""
        sizes: deque[int] = deque()
        batches = counted(map(_arguments, arrays), sizes)
        output = AddedOutput([target.part for target in self.lookups.targets])
        with closing(self.lookups.enriched(batches, lambda _: output)) as structs:
            yield from in_sizes(structs, sizes)


def _fault(arguments: pa.Schema) -> str | None:
    if not len(arguments):  # as of `lookup_x()` in SQL
        return "the lookup function has no argument; pass the columns of the key"
    for field in arguments:
        if types.is_nested(field.type):
            remedy = "its fields" if types.is_struct(field.type) else "a single value"
            return f"{field.name} is {type_text(field.type)}, which is no key type; pass {remedy}"
    return None


def _row_of_nulls(target: LookupTarget) -> pa.StructArray:
    """The answer to a key with a NULL, which has no type: the default row, or NULL."""
    request = replace(target.request(ANY_KEY), wants_default=True)
    channel = described_channel(target.address, request)
    default = target.plan(ANY_KEY, channel).default
    columns = target.part.columns
    if default is None:
        return pa.nulls(1, pa.struct(list(columns)))
    return pa.StructArray.from_arrays(default.columns, fields=list(columns))


def _arguments(parts: pa.Array | tuple[pa.Array, ...]) -> pa.RecordBatch:
    columns = list(parts) if isinstance(parts, tuple) else [parts]
    # Functions take their arguments by position, so the columns have no names here.
    return pa.record_batch(columns, [f"argument {index}" for index in range(len(columns))])


def task_origin() -> str:
    """The task, for people; distinct for retried and speculative attempts."""
    context = TaskContext.get()
    if context is None:
        return "driver"
    return (
        f"stage {context.stageId()} partition {context.partitionId()}"
        f" attempt {context.attemptNumber()} task {context.taskAttemptId()}"
    )


def task_trace(given: TraceParent | None) -> TraceParent | None:
    """The given trace, or that of the job's local properties, where the task runs."""
    context = TaskContext.get()
    if given is not None or context is None:
        return given
    traceparent = context.getLocalProperty("traceparent")
    if traceparent is None:
        return None
    return TraceParent(traceparent, context.getLocalProperty("tracestate") or "")
