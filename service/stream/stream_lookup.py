"""One LOOKUP from its arrival to its last answer, checked against the channel's schema."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.dimension.batcher import ChannelId
from lookup_core.dimension.flight_table import LookupId
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode, Overloaded
from lookup_core.keys.key_casts import KeyCasts
from lookup_core.protocol.answer_budget import AnswerBudget
from lookup_core.protocol.lookup_scheduler import Costs
from service.engine.dimension import Dimension
from service.engine.tracer import CallerSpan, NullTracer, Tracer


class ChannelSchema:
    """Key and columns of one channel; `key` has the fields as the peer sends them."""

    def __init__(self, key: pa.Schema, promised: DimensionSchema) -> None:
        self.columns = tuple(promised.columns.names)
        self._key = key
        self._promised = promised
        self._kept: tuple[DimensionSchema, KeyCasts] | None = None  # by the schema seen last

    def casts(self, schema: DimensionSchema) -> KeyCasts:
        """How the peer's keys become those of this schema, if it keeps the promise.

        Raises BackendError (`schema_changed`).
        """
        if self._kept is None or self._kept[0] is not schema:
            if not schema.still_offers(self._promised):
                detail = "the dimension has other columns since the channel was opened"
                raise BackendError(ErrorCode.SCHEMA_CHANGED, detail)
            self._kept = (schema, KeyCasts(self._key, schema))
        return self._kept[1]


PART_BYTES = 4 * 1024 * 1024  # of answers: their bytes are held until the last of them is sent


@dataclass(frozen=True, slots=True)
class Asker:
    """What the lookups of one channel have in common."""

    connection: int
    channel: int  # on its connection
    turn: ChannelId  # in the process
    dimension: Dimension
    promise: ChannelSchema
    budget: AnswerBudget[int]
    costs: Costs
    tracer: Tracer = field(default_factory=NullTracer)


@dataclass(frozen=True, slots=True)
class RequestedRecords:
    """What one lookup asks."""

    keys: pa.RecordBatch  # as the peer has them
    deadline_s: float
    event_time_ms: int | None = None  # the largest of them
    span: CallerSpan | None = None  # if it is followed; ended with the lookup


@dataclass(frozen=True, slots=True)
class HeldAnswer:
    """An answer to some records of a lookup, whose bytes are held until it is sent."""

    answer: Answer
    held_bytes: int
    is_last: bool  # of the lookup


@dataclass(slots=True, eq=False)
class _Part:
    start: int  # position of its first record in the lookup
    unanswered: int
    record_bytes: int  # held for each of those
    lookup_id: LookupId | None = None  # while the dimension has some of them


class StreamLookup:
    """Asks the dimension part by part; `deliver` gets the answers as they come."""

    def __init__(
        self,
        asked: RequestedRecords,
        asker: Asker,
        *,
        deliver: Callable[[HeldAnswer], None],
        on_defect: Callable[[Exception], None],
    ) -> None:
        self.turn = asker.turn
        self.pace = asker.costs.pace
        self.records = int(asked.keys.num_rows)
        self.deadline_s = asked.deadline_s
        self._asked = asked
        self._asker = asker
        self._deliver = deliver
        self._on_defect = on_defect
        self._unanswered = self.records
        self._parts: set[_Part] = set()  # with something unanswered

    def records_that_fit(self, wanted: int) -> int:
        """For how many of so many records, or of a part of them, there is room; 0 for too few."""
        record_bytes = self._asker.costs.size.record_bytes
        most = min(wanted, max(PART_BYTES // record_bytes, 1))
        asker = self._asker
        return asker.budget.records_that_fit(
            asker.connection, asker.channel, record_bytes, wanted=most
        )

    def carry_out(self, records: range, now: float) -> None:
        """Answer what can be answered at once; the rest follows."""
        part = self._begin(records)
        try:
            answers = self._submit(part, self.deadline_s - now)
        except (Overloaded, BackendError) as error:
            positions = np.arange(part.unanswered, dtype=np.int32)
            answers = [rowless_answer(positions, Outcome.ERROR, error=error.code)]
        for answer in answers:
            self._on_answer(part, answer)

    def time_out(self, records: range) -> None:
        """These records were still in line when the time was over."""
        self._asker.dimension.count_timed_out(len(records))
        positions = np.arange(records.start, records.stop, dtype=np.int32)
        answer = rowless_answer(positions, Outcome.TIMEOUT, error=ErrorCode.TIMEOUT)
        self._hand_on(answer, answer.total_bytes)

    def leave(self) -> None:
        """Nobody waits for it any more; harmless when it has ended."""
        for part in self._parts:
            if part.lookup_id is not None:
                self._asker.dimension.leave(part.lookup_id)
            self._release(part, part.unanswered)
        self._parts.clear()
        if self._asked.span is not None and self._unanswered:
            self._asked.span.end(is_left=True)
            self._unanswered = 0

    def fail(self, error: Exception) -> None:
        """To carry it out met a defect; its connection must end."""
        self._on_defect(error)

    def _begin(self, records: range) -> _Part:
        part = _Part(records.start, len(records), self._asker.costs.size.record_bytes)
        self._parts.add(part)
        self._hold(part.unanswered * part.record_bytes)
        return part

    def _submit(self, part: _Part, timeout_s: float) -> list[Answer]:
        def deliver(answer: Answer, is_last: bool) -> None:  # noqa: FBT001 -- the shape of Deliver
            if is_last:
                part.lookup_id = None
            self._on_answer(part, answer)

        asker = self._asker
        casts = asker.promise.casts(asker.dimension.schema)
        keys = self._asked.keys.slice(part.start, part.unanswered)
        submitted = asker.dimension.submit(
            casts.typed_keys(keys),
            columns=asker.promise.columns,
            channel=asker.turn,
            timeout_s=timeout_s,
            deliver=deliver,
            event_time_ms=self._asked.event_time_ms,
            span=self._asked.span,
        )
        part.lookup_id = None if submitted.is_done else submitted.lookup_id
        return submitted.answers

    def _on_answer(self, part: _Part, answer: Answer) -> None:
        self._release(part, answer.size)
        part.unanswered -= answer.size
        if not part.unanswered:
            self._parts.discard(part)
        answer_bytes = answer.total_bytes
        if answer.rows is None:
            self._asker.costs.size.on_no_rows(answer.size)
        else:
            self._asker.costs.size.on_rows(answer.size, answer_bytes)
        self._hand_on(answer.moved(part.start), answer_bytes)

    def _hand_on(self, answer: Answer, answer_bytes: int) -> None:
        self._hold(answer_bytes)
        self._unanswered -= answer.size
        if self._asked.span is not None:
            self._asked.span.count_outcomes(answer.outcomes)
            if not self._unanswered:
                self._asked.span.end()
        self._deliver(HeldAnswer(answer, answer_bytes, is_last=not self._unanswered))

    def _hold(self, count_bytes: int) -> None:
        asker = self._asker
        asker.budget.hold(asker.connection, asker.channel, count_bytes)

    def _release(self, part: _Part, records: int) -> None:
        asker = self._asker
        asker.budget.release(asker.connection, asker.channel, records * part.record_bytes)
