"""Records in flight: the records of one operator from their arrival until they are emitted.

Combines the element queue (places), the questions (answers) and the byte budget (memory). Does not
wait, send, or build output.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.answer import Answer, Outcome
from lookup_core.errors import ErrorCode
from lookup_core.event_time.record_watermarks import Cut
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

Counts = npt.NDArray[np.uint16]  # of lookups

_MIN_RUN_SHARE = 4  # of the capacity; a smaller run waits, unless it ends the batch
_FAILURES = (Outcome.TIMEOUT, Outcome.ERROR)

Sources = Sequence[frozenset[int]]  # for each lookup, those whose columns its key needs
ONE_LOOKUP: Sources = (frozenset(),)


@dataclass(frozen=True, slots=True)
class Leaving:
    """Answered rows of one run that leave now."""

    records: pa.RecordBatch
    questions: Sequence[Question]  # one for each lookup
    rows: Positions  # ascending


@dataclass(frozen=True, slots=True)
class Failed:
    """The records of a run for which a lookup ended with this outcome, and the error codes."""

    question: QuestionId
    lookup: int
    outcome: Outcome
    records: int
    codes: tuple[ErrorCode, ...]
    has_expired: bool = False  # at the deadline of the records, without an answer


@dataclass(frozen=True, slots=True)
class LookupRows:
    """One lookup of some rows of a run."""

    question: QuestionId
    lookup: int
    rows: Positions  # ascending


@dataclass(frozen=True, slots=True)
class Progress:
    """What an answer has changed."""

    failed: tuple[Failed, ...] = ()
    ready: tuple[LookupRows, ...] = ()  # their keys are known now


@dataclass(frozen=True, slots=True)
class RunTimes:
    """When the lookups of a run end, and the times of its records."""

    deadline_s: float  # monotonic
    latest_ms: int | None = None  # the largest event time


@dataclass(slots=True)
class _Pending:
    records: pa.RecordBatch
    questions: Sequence[Question]
    times: RunTimes
    row_bytes: int
    rows_left: int
    unanswered: Counts | None  # [rows] lookups without an answer; None: there is one lookup
    waits_for: dict[int, Counts]  # {lookup: [rows] lookups before it without an answer}
    slices: list[tuple[SlotId, Rows]] = field(default_factory=list)  # rows of `records`


class RecordsInFlight:
    """The records of one operator, bounded by the places of the queue and by the byte budget.

    A record is complete when each lookup of it has an answer.
    """

    def __init__(
        self, queue: ElementQueue, budget: ByteBudget, sources: Sources = ONE_LOOKUP
    ) -> None:
        self._queue = queue
        self._budget = budget
        self._sources = sources
        self._ids = count(1)
        self._pending: dict[QuestionId, _Pending] = {}  # with rows that have not left
        self._origins: dict[SlotId, tuple[QuestionId, int]] = {}  # {slice: question, first row}
        self._watermarks: dict[SlotId, int] = {}  # {mark: milliseconds}
        self.passed_ms: int | None = None  # the last watermark that has left

    @property
    def size(self) -> int:
        """The number of records and watermarks that have not left."""
        return self._queue.capacity - self._queue.free_places()

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
        questions: Sequence[Question],
        *,
        times: RunTimes,
        key_hashes: KeyHashes | None = None,
    ) -> QuestionId:
        """Add a run of `next_run`, with the records of its rows and a question for each lookup.

        `key_hashes`, one for each record, are required by `KeyOrderedQueue`.
        """
        question_id = QuestionId(next(self._ids))
        slices: list[tuple[SlotId, Rows]] = []
        for element in run.elements:
            if isinstance(element, Cut):
                self._watermarks[self._put(Mark())] = element.watermark_ms
                continue
            rows = Rows(element.start - run.rows.start, element.stop - run.rows.start)
            hashes = None if key_hashes is None else key_hashes[rows.start : rows.stop]
            slot = self._put(Slice(rows.stop - rows.start, times.deadline_s, hashes))
            slices.append((slot, rows))
            self._origins[slot] = (question_id, rows.start)
        if size := records.num_rows:
            row_bytes, lookups = records.nbytes // size, len(questions)
            self._pending[question_id] = _Pending(
                *(records, questions, times, row_bytes, size),
                unanswered=None if lookups == 1 else np.full(size, lookups, np.uint16),
                waits_for={
                    lookup: np.full(size, len(sources), np.uint16)
                    for lookup, sources in enumerate(self._sources)
                    if sources
                },
                slices=slices,
            )
            self._budget.add(size, row_bytes=row_bytes)
        return question_id

    def run_of(self, question_id: QuestionId) -> Leaving:
        """All records of a run that has not left wholly."""
        pending = self._pending[question_id]
        return Leaving(pending.records, pending.questions, np.arange(pending.records.num_rows))

    def times_of(self, question_id: QuestionId) -> RunTimes:
        """The times of a run that has not left wholly."""
        return self._pending[question_id].times

    def answer(self, question_id: QuestionId, lookup: int, answer: Answer) -> Progress:
        """Store an answer; returns the records that it fails, and those that it makes ready.

        A late answer is ignored.
        """
        pending = self._pending.get(question_id)
        if pending is None:
            return Progress()
        question = pending.questions[lookup]
        known_bytes = question.answer_bytes
        rows = question.answer(answer)
        if rows is None:
            return Progress()
        self._learn_size(pending, rows, answer_bytes=question.answer_bytes - known_bytes)
        self._on_answered(pending, rows)
        failures = [outcome for outcome in _FAILURES if (answer.outcomes == outcome).any()]
        failed: list[Failed] = []
        if failures:
            ended = LookupRows(question_id, lookup, np.flatnonzero(rows))
            failed = [self._failed(ended, outcome) for outcome in failures]
        ready = []
        for later, waits_for in pending.waits_for.items():
            if lookup in self._sources[later]:
                waits_for[rows] -= 1
                now_ready = np.flatnonzero(rows & (waits_for == 0))
                if len(now_ready):
                    ready.append(LookupRows(question_id, later, now_ready))
        return Progress(tuple(failed), tuple(ready))

    def miss(self, absent: LookupRows) -> Progress:
        """Answer rows that were not asked, and whose key no row matches; returns as `answer`."""
        question = self._pending[absent.question].questions[absent.lookup]
        key = question.ask(absent.rows, np.zeros(len(absent.rows), np.intp), 1)
        return self.answer(absent.question, absent.lookup, question.without_row(key))

    def expire(self, now_s: float) -> list[QuestionId]:
        """Complete the records of the runs whose deadline is not after `now_s`.

        Before they leave, the caller asks the `unsent` rows of each of their lookups, then gives
        the lookup up, one after the other: the end of one makes keys of later ones known.
        """
        expired = sorted({self._origins[each.slot][0] for each in self._queue.expire(now_s)})
        for question_id in expired:
            pending = self._pending[question_id]
            pending.waits_for = {}  # nothing is sent any more
            for question in pending.questions:
                self._learn_size(pending, question.unanswered_rows(), answer_bytes=0)
        return expired

    def unsent(self, question_id: QuestionId, lookup: int) -> LookupRows:
        """The rows of a run for which a lookup was not asked."""
        rows = self._pending[question_id].questions[lookup].rows_to_ask()
        return LookupRows(question_id, lookup, rows)

    def give_up(self, question_id: QuestionId, lookup: int) -> Failed | None:
        """End the rows of a lookup that wait for an answer as timed out; None without any."""
        question = self._pending[question_id].questions[lookup]
        rows = question.give_up(Outcome.TIMEOUT, ErrorCode.TIMEOUT)
        if rows is None:
            return None
        ended = LookupRows(question_id, lookup, np.flatnonzero(rows))
        return replace(self._failed(ended, Outcome.TIMEOUT), has_expired=True)

    def failed_rows(self, failed: Failed, *, most: int) -> Leaving:
        """A record of each key that failed, of at most `most` keys; before the records leave."""
        run = self.run_of(failed.question)
        rows = run.questions[failed.lookup].first_rows_with(failed.outcome, most=most)
        return replace(run, rows=rows)

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
            for question in pending.questions:
                question.check_invariants()
            assert 0 < pending.rows_left <= pending.records.num_rows

    def _put(self, element: Slice | Mark) -> SlotId:
        slot = self._queue.try_put(element)
        assert slot is not None  # `next_run` checked the free places
        return slot

    def _on_answered(self, pending: _Pending, rows: RowMask) -> None:
        if pending.unanswered is not None:
            pending.unanswered[rows] -= 1
            rows = rows & (pending.unanswered == 0)
            if not rows.any():
                return
        # Watermarks may cut thousands of slices; only those with answers are visited.
        starts = np.fromiter(
            (part.start for _, part in pending.slices), np.intp, len(pending.slices)
        )
        for index in np.flatnonzero(np.logical_or.reduceat(rows, starts)).tolist():
            slot, part = pending.slices[index]
            self._queue.complete(slot, rows[part.start : part.stop])

    def _failed(self, ended: LookupRows, outcome: Outcome) -> Failed:
        question = self._pending[ended.question].questions[ended.lookup]
        records = int(np.count_nonzero(question.outcomes_at(ended.rows) == outcome))
        codes = tuple(question.errors_with(outcome))
        return Failed(ended.question, ended.lookup, outcome, records, codes)

    def _learn_size(self, pending: _Pending, rows: RowMask, *, answer_bytes: int) -> None:
        # A row has an answer of each lookup.
        count = np.count_nonzero(rows) / len(pending.questions)
        self._budget.on_answered(count, answer_bytes=answer_bytes)

    def _emitted(self) -> Iterator[tuple[QuestionId, Positions]]:
        while (emission := self._queue.pop_completed()) is not None:
            if emission.slot in self._watermarks:
                self.passed_ms = self._watermarks.pop(emission.slot)
                continue
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
        return Leaving(pending.records, pending.questions, rows)
