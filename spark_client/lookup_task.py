"""Task of one partition in the Python worker: a picklable function of record batches."""

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
from pyarrow import types
from pyspark import TaskContext

from lookup_core.errors import ErrorCode, InvalidRequest, SidelookError
from lookup_core.protocol.client_channel import ChannelRequest
from lookup_core.protocol.frames import TraceParent
from spark_client.as_of import (
    AsOfPlan,
    check_versions,
    list_columns,
    single_columns,
    version_pick,
)
from spark_client.lookup_operator import LookupOperator, LookupPlan
from spark_client.lookup_settings import JoinKeys, LookupSettings
from spark_client.output_columns import (
    JoinedOutput,
    Output,
    StructOutput,
    column_casts,
    joined_output,
)
from spark_client.schemas import check_types
from spark_client.transport.connections import Address, connections
from spark_client.transport.interface import LookupChannel


@dataclass(frozen=True, slots=True)
class LookupTarget:
    """The dimension, the records' key columns, and the types of the added columns."""

    address: Address
    dimension: str
    columns: pa.Schema  # as the output has them, without prefix
    keys: JoinKeys
    key_columns: tuple[int, ...]  # positions in the input
    settings: LookupSettings

    def enriched(
        self, batches: Iterator[pa.RecordBatch], output_of: Callable[[pa.Schema], Output]
    ) -> Generator[pa.RecordBatch]:
        """The output of a partition; one without records opens no connection.

        `output_of` takes the schema of the records. Raises InvalidRequest, BackendError,
        SidecarUnreachable or LookupFailed. Closing the generator cancels the open lookups.
        """
        operator: LookupOperator | None = None
        try:
            while (batch := _next(batches, operator)) is not None:
                if not batch.num_rows:
                    yield output_of(batch.schema).empty()
                    continue
                if operator is None:
                    operator = self._operator(batch.schema, output_of(batch.schema))
                yield from operator.take_in(batch)
            if operator is not None:
                yield from operator.drain()
        finally:  # also after LIMIT, or a failure downstream
            if operator is not None:
                operator.close()

    def _operator(self, records: pa.Schema, output: Output) -> LookupOperator:
        pairs = zip(self.keys.names, self.key_columns, strict=True)
        fields = [pa.field(name, records.field(index).type) for name, index in pairs]
        key = pa.schema(fields, metadata=self.keys.metadata)
        request = ChannelRequest(
            self.dimension,
            tuple(self.columns.names),
            origin(),
            key,
            self.settings.as_of is not None,
            task_trace(self.settings.trace),
        )
        channel = connections.to(self.address).open(request)
        try:
            return LookupOperator(self._plan(key, channel, output), channel)
        except SidelookError:
            channel.close()
            raise

    def _plan(self, key: pa.Schema, channel: LookupChannel, output: Output) -> LookupPlan:
        column, versions = self.settings.as_of, channel.versions
        check_versions(versions, is_as_of=column is not None, dimension=self.dimension)
        sent, wanted, offered = channel.columns, self.columns, channel.columns
        if column is not None:
            wanted, offered = list_columns(self.columns, sent), single_columns(sent)
        casts = column_casts(sent, wanted, dimension=self.dimension)
        check_types(self.columns, offered, dimension=self.dimension)
        as_of = None
        if column is not None and versions is not None:
            as_of = AsOfPlan(column, version_pick(casts.target, self.columns, versions))
        return LookupPlan(
            self.dimension, self.key_columns, key, casts, output, self.settings, as_of
        )


@dataclass(frozen=True, slots=True)
class LookupJoinTask:
    """The function that `mapInArrow` calls."""

    target: LookupTarget
    prefix: str
    status_column: str | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Enrich a partition; all output batches have one schema."""
        return self.target.enriched(batches, self._output)

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
        """A struct for each input row, in the same order; NULL for a key that is NULL."""
        batches = map(_key_columns, arrays)
        first = next(batches, None)
        if first is None:
            return
        if any(types.is_null(kind) for kind in first.schema.types):  # as of `lookup_x(NULL)`
            structs = pa.struct(list(self.columns))
            yield from (pa.nulls(keys.num_rows, structs) for keys in chain([first], batches))
            return
        names = tuple(first.schema.names)
        target = LookupTarget(
            address=self.address,
            dimension=self.dimension,
            columns=self.columns,
            keys=JoinKeys(names, names),
            key_columns=tuple(range(len(names))),
            settings=self.settings,
        )
        output = StructOutput(self.columns)
        with closing(target.enriched(chain([first], batches), lambda _: output)) as structs:
            for batch in structs:
                yield batch.column(0)


def origin() -> str:
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


def _next(
    batches: Iterator[pa.RecordBatch], operator: LookupOperator | None
) -> pa.RecordBatch | None:
    # Before the first batch there is no channel that could be idle.
    return next(batches, None) if operator is None else operator.next_of(batches)


def _key_columns(parts: pa.Array | tuple[pa.Array, ...]) -> pa.RecordBatch:
    columns = list(parts) if isinstance(parts, tuple) else [parts]
    for index, column in enumerate(columns):
        if types.is_nested(column.type):
            detail = f"argument {index} is {column.type}, which is no key type"
            raise InvalidRequest(ErrorCode.KEY_TYPE, detail)
    # Functions take their arguments by position, so the key's columns have no names here.
    return pa.record_batch(columns, [f"argument {index}" for index in range(len(columns))])
