"""Records in flight: the records of one operator from their arrival until they are emitted.

Combines the element queue (places), the questions (answers) and the byte budget (memory). Does not
wait, send, or build output.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

import numpy as np
import pyarrow as pa

from lookup_core.answer import Answer, Outcome
from lookup_core.errors import ErrorCode
from lookup_core.operator.batch_intake import BatchIntake, ByteBudget, Rows, Run
from lookup_core.operator.element_queue import (
    ElementQueue,
    KeyHashes,
    Mark,
    Positions,
    RowMask,
    Slice,
    SlotId,
)
from lookup_core.operator.question import Question
from lookup_core.protocol.sent_lookups import QuestionId

_MIN_RUN_SHARE = 2  # of the capacity; a smaller run waits, unless it ends the batch
_FAILURES = (Outcome.TIMEOUT, Outcome.ERROR)


@dataclass(frozen=True, slots=True)
class Leaving:
    """Answered rows of one question that leave now."""

    records: pa.RecordBatch
    question: Question
    rows: Positions  # ascending


@dataclass(frozen=True, slots=True)
class Failed:
    """The records of a question that ended with this outcome, and their error codes."""

    question: QuestionId
    outcome: Outcome
    records: int
    codes: tuple[ErrorCode, ...]


@dataclass(slots=True)
class _Pending:
    records: pa.RecordBatch
    question: Question
    row_bytes: int
    rows_left: int
    slices: list[tuple[SlotId, Rows]] = field(default_factory=list)  # rows of `records`


class RecordsInFlight:
    """The records of one operator, bounded by the places of the queue and by the byte budget."""

    def __init__(self, queue: ElementQueue, budget: ByteBudget) -> None:
        self._queue = queue
        self._budget = budget
        self._ids = count(1)
        self._pending: dict[QuestionId, _Pending] = {}  # with rows that have not left
        self._origins: dict[SlotId, tuple[QuestionId, int]] = {}  # {slice: question, first row}

    @property
    def is_empty(self) -> bool:
        """Whether all records and watermarks have left."""
        return self._queue.free_places() == self._queue.capacity

    def next_run(self, intake: BatchIntake, *, row_bytes: int) -> Run | None:
        """The next run of a batch that enters the queue; None while the room is too small."""
        places = self._queue.free_places()
        rows = self._budget.rows_that_fit(row_bytes)
        least = min(intake.places_left, max(self._queue.capacity // _MIN_RUN_SHARE, 1))
        if not rows or places < least:
            return None
        return intake.take(places=places, rows=rows)

    def put(
        self,
        run: Run,
        records: pa.RecordBatch,
        question: Question,
        *,
        deadline_s: float,
        key_hashes: KeyHashes | None = None,
    ) -> QuestionId:
        """Add a run of `next_run`, with the records of its rows and their question.

        `key_hashes`, one for each record, are required by `KeyOrderedQueue`.
        """
        pending = _Pending(
            records, question, records.nbytes // max(records.num_rows, 1), records.num_rows
        )
        question_id = QuestionId(next(self._ids))
        for element in run.elements:
            if not isinstance(element, Rows):
                self._put(Mark())
                continue
            rows = Rows(element.start - run.rows.start, element.stop - run.rows.start)
            hashes = None if key_hashes is None else key_hashes[rows.start : rows.stop]
            slot = self._put(Slice(rows.stop - rows.start, deadline_s, hashes))
            pending.slices.append((slot, rows))
            self._origins[slot] = (question_id, rows.start)
        if records.num_rows:
            self._pending[question_id] = pending
            self._budget.add(records.num_rows, row_bytes=pending.row_bytes)
        return question_id

    def answer(self, question_id: QuestionId, answer: Answer) -> list[Failed]:
        """Store an answer; returns the records that it fails. A late answer is ignored."""
        pending = self._pending.get(question_id)
        if pending is None:
            return []
        rows = pending.question.answer(answer)
        if rows is None:
            return []
        self._complete(pending, rows)
        failures = [outcome for outcome in _FAILURES if (answer.outcomes == outcome).any()]
        return [self._failed(question_id, rows, outcome) for outcome in failures]

    def expire(self, now_s: float) -> list[Failed]:
        """Give up the questions whose deadline is not after `now_s`."""
        questions = {self._origins[each.slot][0] for each in self._queue.expire(now_s)}
        return [self._give_up(question_id) for question_id in sorted(questions)]

    def failed_records(self, failed: Failed, *, most: int) -> pa.RecordBatch:
        """A record of each key that failed, of at most `most` keys; before the records leave."""
        pending = self._pending[failed.question]
        return pending.records.take(
            pa.array(pending.question.first_rows_with(failed.outcome, most=most))
        )

    def next_deadline(self) -> float | None:
        """The earliest deadline of an unanswered record."""
        return self._queue.next_deadline()

    def leaving(self) -> Iterator[Leaving]:
        """Remove all rows that may leave; consecutive rows of one question leave together."""
        together: list[Positions] = []
        current: QuestionId | None = None
        for question_id, rows in self._emitted():
            if question_id != current and current is not None:
                yield self._left(current, together)
                together = []
            current = question_id
            together.append(rows)
        if current is not None:
            yield self._left(current, together)

    def check_invariants(self) -> None:
        """For tests: every slice inside belongs to a question, and the parts agree."""
        self._queue.check_invariants()
        self._budget.check_invariants()
        assert {question for question, _ in self._origins.values()} == set(self._pending)
        for pending in self._pending.values():
            pending.question.check_invariants()
            assert 0 < pending.rows_left <= pending.records.num_rows

    def _put(self, element: Slice | Mark) -> SlotId:
        slot = self._queue.try_put(element)
        assert slot is not None  # `next_run` checked the free places
        return slot

    def _complete(self, pending: _Pending, rows: RowMask) -> None:
        # Watermarks may cut thousands of slices; only those with answers are visited.
        starts = np.fromiter(
            (part.start for _, part in pending.slices), np.intp, len(pending.slices)
        )
        for index in np.flatnonzero(np.logical_or.reduceat(rows, starts)).tolist():
            slot, part = pending.slices[index]
            self._queue.complete(slot, rows[part.start : part.stop])
        if not pending.question.open_keys:
            self._learn_size(pending.question)

    def _give_up(self, question_id: QuestionId) -> Failed:
        question = self._pending[question_id].question
        rows = question.give_up(Outcome.TIMEOUT, ErrorCode.TIMEOUT)
        assert rows is not None  # an expired slice had open rows
        self._learn_size(question)
        return self._failed(question_id, rows, Outcome.TIMEOUT)

    def _failed(self, question_id: QuestionId, rows: RowMask, outcome: Outcome) -> Failed:
        question = self._pending[question_id].question
        ended = question.outcomes_at(np.flatnonzero(rows))
        records = int(np.count_nonzero(ended == outcome))
        return Failed(question_id, outcome, records, tuple(question.errors_with(outcome)))

    def _learn_size(self, question: Question) -> None:
        self._budget.on_answered(question.row_count, answer_bytes=question.answer_bytes)

    def _emitted(self) -> Iterator[tuple[QuestionId, Positions]]:
        while (emission := self._queue.pop_completed()) is not None:
            if emission.slot not in self._origins:
                continue  # a watermark, which was sent when it entered
            question_id, start = self._origins[emission.slot]
            if emission.is_last:
                del self._origins[emission.slot]
            yield question_id, emission.rows + start

    def _left(self, question_id: QuestionId, parts: list[Positions]) -> Leaving:
        pending = self._pending[question_id]
        # Back in the input order; no watermark is between rows that leave together.
        rows = np.sort(np.concatenate(parts)) if len(parts) > 1 else parts[0]
        pending.rows_left -= len(rows)
        self._budget.remove(len(rows), row_bytes=pending.row_bytes)
        if not pending.rows_left:
            del self._pending[question_id]
        return Leaving(pending.records, pending.question, rows)
