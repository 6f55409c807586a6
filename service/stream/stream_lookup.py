"""One LOOKUP of a stream, from its arrival to its last answer."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.dimension.batcher import ChannelId
from lookup_core.dimension.flight_table import LookupId
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode, Overloaded
from lookup_core.keys.typed_keys import KeyCasts
from lookup_core.lookup_options import LookupOptions
from lookup_core.protocol.answer_budget import AnswerBudget
from lookup_core.protocol.lookup_scheduler import Costs
from service.engine.dimension import Dimension
from service.engine.tracer import CallerSpan, NullTracer, Tracer
from service.stream.outbox import AnswerPiece


class ChannelSchema:
    """Key and columns of one channel; `key` has the fields as the peer sends them.

    `needed` has the columns of its options, which are not in its answers.
    """

    def __init__(
        self, key: pa.Schema, opened: DimensionSchema, needed: Iterable[pa.Field] = ()
    ) -> None:
        self.columns = tuple(opened.columns.names)
        self._key = key
        self._opened = replace(opened, columns=pa.schema([*opened.columns, *needed]))
        self._latest: tuple[DimensionSchema, KeyCasts] | None = None

    def casts(self, schema: DimensionSchema) -> KeyCasts:
        """The casts from the peer's key to the key of `schema`.

        Raises BackendError (`schema_changed`) if `schema` lacks a column of the opened channel.
        """
        if self._latest is None or self._latest[0] is not schema:
            if not schema.still_offers(self._opened):
                detail = "the columns of the dimension changed after the channel was opened"
                raise BackendError(ErrorCode.SCHEMA_CHANGED, detail)
            self._latest = (schema, KeyCasts(self._key, schema))
        return self._latest[1]


LONGEST_WAY_S = 0.25  # of a LOOKUP, from the client to its arrival
PART_BYTES = 4 * 1024 * 1024  # of answers: their bytes are held until the last one is sent


@dataclass(frozen=True, slots=True)
class ChannelContext:
    """What all lookups of one channel share."""

    connection: int
    channel: int  # number on its connection
    id: ChannelId  # unique in the process
    dimension: Dimension
    schema: ChannelSchema
    budget: AnswerBudget[int]
    costs: Costs
    tracer: Tracer = field(default_factory=NullTracer)
    options: LookupOptions | None = None  # None: all as configured


@dataclass(frozen=True, slots=True)
class RequestedRecords:
    """The records of one lookup."""

    keys: pa.RecordBatch  # as the peer sent them
    deadline_s: float
    timeout_s: float  # from its arrival to the deadline
    event_time_ms: int | None = None  # the latest of the records
    span: CallerSpan | None = None  # if the lookup is traced; ended with it
    sequence: int = 0  # of the LOOKUP


@dataclass(slots=True, eq=False)
class _Part:
    start: int  # position of its first record in the lookup
    unanswered: int
    record_bytes: int  # held for each unanswered record
    lookup_id: LookupId | None = None  # while the dimension has unanswered records


class StreamLookup:
    """Queries the dimension part by part; `deliver` gets the answers as they arrive."""

    def __init__(
        self,
        requested: RequestedRecords,
        context: ChannelContext,
        *,
        deliver: Callable[[AnswerPiece], None],
        on_defect: Callable[[Exception], None],
    ) -> None:
        self.channel = context.id
        self.pace = context.costs.pace
        self.records = int(requested.keys.num_rows)
        self.deadline_s = requested.deadline_s
        self._timeout_s = requested.timeout_s
        self._keys: pa.RecordBatch | None = requested.keys  # None once all are submitted
        self._event_time_ms = requested.event_time_ms
        self._span = requested.span
        self._sequence = requested.sequence
        self._context = context
        self._deliver = deliver
        self._on_defect = on_defect
        self._unanswered = self.records
        self._parts: set[_Part] = set()  # with unanswered records

    def records_that_fit(self, wanted: int) -> int:
        """How many of `wanted` records the byte budget admits now; possibly 0."""
        context = self._context
        record_bytes = context.costs.size.record_bytes
        most = min(wanted, max(PART_BYTES // record_bytes, 1))
        return context.budget.records_that_fit(
            context.connection, context.channel, record_bytes, wanted=most
        )

    def carry_out(self, records: range, now: float) -> None:
        """Submit these records; answers that are known already are delivered before it returns."""
        context = self._context
        part = _Part(records.start, len(records), context.costs.size.record_bytes)
        self._parts.add(part)
        self._hold(part.unanswered * part.record_bytes)
        try:
            answers = self._submit(part, self.deadline_s - now)
        except (Overloaded, BackendError) as error:
            positions = np.arange(part.unanswered, dtype=np.int32)
            answers = [rowless_answer(positions, Outcome.ERROR, error=error.code)]
        for answer in answers:
            self._on_answer(part, answer)

    def time_out(self, records: range) -> None:
        """Answer these records, which were still queued at the deadline, with `timeout`."""
        self._context.dimension.count_timed_out(len(records))
        positions = np.arange(records.start, records.stop, dtype=np.int32)
        answer = rowless_answer(positions, Outcome.TIMEOUT, error=ErrorCode.TIMEOUT)
        self._deliver_held(answer, answer.total_bytes)

    def count_late(self, now: float) -> None:
        """At the deadline, count unanswered records as timed out; for CANCEL, before `leave`."""
        # The client's deadline is earlier, by the time that its LOOKUP was on the way.
        longest_way_s = min(LONGEST_WAY_S, self._timeout_s / 10)
        if self.deadline_s - now <= longest_way_s:
            self._context.dimension.count_timed_out(self._unanswered)

    def leave(self) -> None:
        """Abandon the lookup and release its bytes; a no-op after its last answer."""
        for part in self._parts:
            if part.lookup_id is not None:
                self._context.dimension.leave(part.lookup_id)
            self._release(part, part.unanswered)
        self._parts.clear()
        if self._span is not None and self._unanswered:
            self._span.end(is_left=True)
            self._unanswered = 0

    def fail(self, error: Exception) -> None:
        """Report a defect of `carry_out`; the connection must end."""
        self._on_defect(error)

    def _submit(self, part: _Part, timeout_s: float) -> list[Answer]:
        def deliver(answer: Answer, is_last: bool) -> None:  # noqa: FBT001 -- the shape of Deliver
            if is_last:
                part.lookup_id = None
            self._on_answer(part, answer)

        context = self._context
        casts = context.schema.casts(context.dimension.schema)
        assert self._keys is not None  # parts do not overlap
        keys = self._keys.slice(part.start, part.unanswered)
        if part.start + part.unanswered == self.records:
            self._keys = None  # one slow key must not keep the whole frame
        submitted = context.dimension.submit(
            casts.typed_keys(keys),
            columns=context.schema.columns,
            channel=context.id,
            timeout_s=timeout_s,
            deliver=deliver,
            event_time_ms=self._event_time_ms,
            span=self._span,
            options=context.options,
        )
        part.lookup_id = None if submitted.is_done else submitted.lookup_id
        return submitted.answers

    def _on_answer(self, part: _Part, answer: Answer) -> None:
        self._release(part, answer.size)
        part.unanswered -= answer.size
        if not part.unanswered:
            self._parts.discard(part)
        answer_bytes, size = answer.total_bytes, self._context.costs.size
        if answer.rows is None:
            size.on_no_rows(answer.size)
        else:
            size.on_rows(answer.size, answer_bytes)
        self._deliver_held(answer.moved(part.start), answer_bytes)

    def _deliver_held(self, answer: Answer, answer_bytes: int) -> None:
        self._hold(answer_bytes)
        self._unanswered -= answer.size
        span = self._span
        if span is not None:
            span.count_outcomes(answer.outcomes)
            if not self._unanswered:
                span.end()
        channel, is_last = self._context.channel, not self._unanswered
        self._deliver(AnswerPiece(channel, self._sequence, is_last, answer, answer_bytes))

    def _hold(self, count_bytes: int) -> None:
        context = self._context
        context.budget.hold(context.connection, context.channel, count_bytes)

    def _release(self, part: _Part, records: int) -> None:
        context = self._context
        context.budget.release(context.connection, context.channel, records * part.record_bytes)
