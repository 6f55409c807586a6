"""Task of one partition in the Python worker: a picklable function of record batches."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext

from lookup_core.errors import SidelookError
from lookup_core.protocol.client_channel import ChannelRequest
from lookup_core.protocol.trace_parent import TraceParent
from spark_client.as_of import AsOfPlan, check_versions, list_columns, version_pick
from spark_client.lookup_operator import LookupOperator, LookupPlan, Output
from spark_client.lookup_settings import JoinKeys, LookupSettings
from spark_client.output_columns import (
    ColumnCasts,
    JoinedOutput,
    StructOutput,
    column_casts,
    joined_output,
)
from spark_client.transport.connections import Address, connections
from spark_client.transport.interface import LookupChannel


def trace_parent(traceparent: str | None) -> TraceParent | None:
    """What a caller wrote; raises ValueError for what is no `traceparent`."""
    if traceparent is None:
        return None
    trace = TraceParent(traceparent)
    if not trace.is_well_formed:
        raise ValueError(
            f"traceparent is 00-<32 hex digits>-<16 hex digits>-<2>, not {traceparent!r}"
        )
    return trace


def task_trace(given: TraceParent | None) -> TraceParent | None:
    """The trace that was given, or that of the job's local properties, where the task runs."""
    context = TaskContext.get()
    if given is not None or context is None:
        return given
    traceparent = context.getLocalProperty("traceparent")
    if traceparent is None:
        return None
    return TraceParent(traceparent, context.getLocalProperty("tracestate") or "")


@dataclass(frozen=True, slots=True)
class LookupTarget:
    """What is looked up, by what, and in which types the answers are promised."""

    address: Address
    dimension: str
    columns: pa.Schema  # as the output has them, without prefix
    keys: JoinKeys
    key_columns: tuple[int, ...]  # positions in the input
    settings: LookupSettings

    def operator(self, records: pa.Schema, output: Output) -> LookupOperator:
        """The operator of this partition, with a channel of its own.

        Raises InvalidRequest, BackendError or SidecarUnreachable.
        """
        key = pa.schema(
            [
                pa.field(name, records.field(index).type)
                for name, index in zip(self.keys.names, self.key_columns, strict=True)
            ],
            metadata=self.keys.metadata,
        )
        is_as_of = self.settings.as_of is not None
        names = tuple(self.columns.names)
        trace = task_trace(self.settings.trace)
        request = ChannelRequest(self.dimension, names, origin(), key, is_as_of, trace)
        channel = connections.to(self.address).open(request)
        try:
            return LookupOperator(self._plan(key, channel, output), channel)
        except SidelookError:
            channel.close()
            raise

    def _plan(self, key: pa.Schema, channel: LookupChannel, output: Output) -> LookupPlan:
        column, versions = self.settings.as_of, channel.versions
        check_versions(versions, is_as_of=column is not None, dimension=self.dimension)
        if column is None or versions is None:
            casts, as_of = self._casts(channel, self.columns), None
        else:
            casts = self._casts(channel, list_columns(self.columns, channel.columns))
            as_of = AsOfPlan(column, version_pick(casts.target, self.columns, versions))
        return LookupPlan(
            self.dimension, self.key_columns, key, casts, output, self.settings, as_of
        )

    def _casts(self, channel: LookupChannel, wanted: pa.Schema) -> ColumnCasts:
        return column_casts(channel.columns, wanted, dimension=self.dimension)


@dataclass(frozen=True, slots=True)
class LookupJoinTask:
    """The function that `mapInArrow` calls."""

    target: LookupTarget
    prefix: str
    status_column: str | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Enrich a partition; an empty one opens no connection."""
        operator: LookupOperator | None = None
        try:
            while (batch := _next(batches, operator)) is not None:
                if not batch.num_rows:
                    yield self._output(batch.schema).empty()
                    continue
                if operator is None:
                    operator = self.target.operator(batch.schema, self._output(batch.schema))
                yield from operator.take_in(batch)
            if operator is not None:
                yield from operator.drain()
        finally:  # also when nobody wants the rest: LIMIT, or a failure downstream
            if operator is not None:
                operator.close()

    def _output(self, records: pa.Schema) -> JoinedOutput:
        return joined_output(
            records,
            self.target.columns,
            prefix=self.prefix,
            status_column=self.status_column,
            is_inner=self.target.settings.is_inner,
        )


@dataclass(frozen=True, slots=True)
class LookupFunctionTask:
    """The function of an iterator of Arrow arrays that `arrow_udf` calls."""

    address: Address
    dimension: str
    columns: pa.Schema
    settings: LookupSettings

    def __call__(self, arrays: Iterator[pa.Array | tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        """A struct for each input row, in the same order."""
        output = StructOutput(self.columns)
        batches = map(_keys, arrays)
        operator: LookupOperator | None = None
        try:
            while (batch := _next(batches, operator)) is not None:
                if not batch.num_rows:
                    yield output.empty().column(0)
                    continue
                if operator is None:
                    operator = self._target(batch.schema).operator(batch.schema, output)
                yield from _first_columns(operator.take_in(batch))
            if operator is not None:
                yield from _first_columns(operator.drain())
        finally:
            if operator is not None:
                operator.close()

    def _target(self, key: pa.Schema) -> LookupTarget:
        return LookupTarget(
            address=self.address,
            dimension=self.dimension,
            columns=self.columns,
            keys=JoinKeys(tuple(key.names), tuple(key.names)),
            key_columns=tuple(range(len(key))),
            settings=self.settings,
        )


def origin() -> str:
    """Who asks, for people; distinct for retried and speculative attempts."""
    context = TaskContext.get()
    if context is None:
        return "driver"
    return (
        f"stage {context.stageId()} partition {context.partitionId()}"
        f" attempt {context.attemptNumber()} task {context.taskAttemptId()}"
    )


def _next(
    batches: Iterator[pa.RecordBatch], operator: LookupOperator | None
) -> pa.RecordBatch | None:
    # Before the first batch there is no channel that could be idle.
    return next(batches, None) if operator is None else operator.next_of(batches)


def _keys(parts: pa.Array | tuple[pa.Array, ...]) -> pa.RecordBatch:
    columns = list(parts) if isinstance(parts, tuple) else [parts]
    # Functions take their arguments by position, so the key's columns have no names here.
    return pa.record_batch(columns, [f"argument {index}" for index in range(len(columns))])


def _first_columns(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Array]:
    return (batch.column(0) for batch in batches)
