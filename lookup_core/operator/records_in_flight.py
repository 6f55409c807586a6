"""The records of one operator between their arrival and their leaving.

Ties together what is decided apart: places (the element queue), answers (the questions), memory
(the byte budget). Does not wait, send, or know what the output looks like.
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

_WORTH_PUTTING = 2  # less than this part of the capacity waits, unless it is all there is
_FAILURES = (Outcome.TIMEOUT, Outcome.ERROR)


@dataclass(frozen=True, slots=True)
class Leaving:
    """Answered rows of records that were asked about together; they leave now."""

    records: pa.RecordBatch
    question: Question
    rows: Positions  # ascending


@dataclass(frozen=True, slots=True)
class Failed:
    """So many records ended in this outcome, for these reasons."""

    outcome: Outcome
    records: int
    codes: tuple[ErrorCode, ...]


@dataclass(slots=True)
class _Asked:
    records: pa.RecordBatch
    question: Question
    row_bytes: int
    rows_left: int
    slices: list[tuple[SlotId, Rows]] = field(default_factory=list)  # rows of `records`


class RecordsInFlight:
    """At most as many records as the queue has places, and about as many bytes as the budget."""

    def __init__(self, queue: ElementQueue, budget: ByteBudget) -> None:
        self._queue = queue
        self._budget = budget
        self._ids = count(1)
        self._asked: dict[QuestionId, _Asked] = {}  # with rows that have not left
        self._origins: dict[SlotId, tuple[QuestionId, int]] = {}  # {slice: question, first row}

    @property
    def is_empty(self) -> bool:
        """Whether everything has left."""
        return not self._queue.statistics().size

    def next_run(self, intake: BatchIntake, *, row_bytes: int) -> Run | None:
        """What of a batch goes in now; None while it is better to wait for room."""
        places = self._queue.free_places()
        rows = self._budget.rows_that_fit(row_bytes)
        capacity = self._queue.statistics().capacity
        worth = min(intake.places_left, max(capacity // _WORTH_PUTTING, 1))
        if not rows or places < worth:
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
        """Take a run in that `next_run` gave: the records of its rows, and what they ask.

        `key_hashes`, one for each record, where the queue keeps the order of each key.
        """
        asked = _Asked(
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
            asked.slices.append((slot, rows))
            self._origins[slot] = (question_id, rows.start)
        if records.num_rows:
            self._asked[question_id] = asked
            self._budget.add(records.num_rows, row_bytes=asked.row_bytes)
        return question_id

    def answer(self, question_id: QuestionId, answer: Answer) -> list[Failed]:
        """Note an answer; which records failed by it. Late answers change nothing."""
        asked = self._asked.get(question_id)
        if asked is None:
            return []
        rows = asked.question.answer(answer)
        if rows is None:
            return []
        self._complete(asked, rows)
        failures = [outcome for outcome in _FAILURES if (answer.outcomes == outcome).any()]
        return [_failed(asked.question, rows, outcome) for outcome in failures]

    def expire(self, now_s: float) -> list[tuple[QuestionId, Failed]]:
        """End what has waited until its deadline; the questions that nobody waits for any more."""
        questions = {self._origins[each.slot][0] for each in self._queue.expire(now_s)}
        return [(question_id, self._give_up(question_id)) for question_id in sorted(questions)]

    def next_deadline(self) -> float | None:
        """When `expire` will have something to do, or None."""
        return self._queue.next_deadline()

    def leaving(self) -> Iterator[Leaving]:
        """Everything that leaves now; neighbours that were asked about together leave together."""
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
        assert {question for question, _ in self._origins.values()} == set(self._asked)
        for asked in self._asked.values():
            asked.question.check_invariants()
            assert 0 < asked.rows_left <= asked.records.num_rows

    def _put(self, element: Slice | Mark) -> SlotId:
        slot = self._queue.try_put(element)
        assert slot is not None  # a run is made to fit
        return slot

    def _complete(self, asked: _Asked, rows: RowMask) -> None:
        # Watermarks may cut thousands of slices: only those with answers are looked at.
        starts = np.fromiter((part.start for _, part in asked.slices), np.intp, len(asked.slices))
        for index in np.flatnonzero(np.logical_or.reduceat(rows, starts)).tolist():
            slot, part = asked.slices[index]
            self._queue.complete(slot, rows[part.start : part.stop])
        if not asked.question.open_keys:
            self._learn_size(asked.question)

    def _give_up(self, question_id: QuestionId) -> Failed:
        question = self._asked[question_id].question
        rows = question.give_up(Outcome.TIMEOUT, ErrorCode.TIMEOUT)
        assert rows is not None  # what expired was open
        self._learn_size(question)
        return _failed(question, rows, Outcome.TIMEOUT)

    def _learn_size(self, question: Question) -> None:
        self._budget.on_answered(question.row_count, answer_bytes=question.answer_bytes)

    def _emitted(self) -> Iterator[tuple[QuestionId, Positions]]:
        while (emission := self._queue.pop_completed()) is not None:
            if emission.slot not in self._origins:
                continue  # a watermark: the service was told when it went in
            question_id, start = self._origins[emission.slot]
            if emission.is_last:
                del self._origins[emission.slot]
            yield question_id, emission.rows + start

    def _left(self, question_id: QuestionId, parts: list[Positions]) -> Leaving:
        asked = self._asked[question_id]
        # Rows of a question never cross a watermark by this: their order is that of the input.
        rows = np.sort(np.concatenate(parts)) if len(parts) > 1 else parts[0]
        asked.rows_left -= len(rows)
        self._budget.remove(len(rows), row_bytes=asked.row_bytes)
        if not asked.rows_left:
            del self._asked[question_id]
        return Leaving(asked.records, asked.question, rows)


def _failed(question: Question, rows: RowMask, outcome: Outcome) -> Failed:
    ended = question.outcomes_at(np.flatnonzero(rows))
    codes = question.errors_with(outcome)
    return Failed(outcome, int(np.count_nonzero(ended == outcome)), tuple(codes))
