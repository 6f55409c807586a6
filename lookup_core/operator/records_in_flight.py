"""Records in flight: the records of one operator from their arrival until they are emitted.

Combines the element queue (places), the answers and the byte budget (memory). Does not
wait, send, or build output.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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
    RowMask,
    RowPositions,
    Slice,
    SlotId,
)
from lookup_core.operator.run_answers import RunAnswers
from lookup_core.protocol.sent_lookups import RunId

LookupCounts = npt.NDArray[np.uint16]  # [rows]

_MIN_RUN_DIVISOR = 4  # a run below this part of the capacity waits, unless it ends the batch
_FAILURES = (Outcome.TIMEOUT, Outcome.ERROR)

Sources = Sequence[frozenset[int]]  # for each lookup, those whose columns its key needs
ONE_LOOKUP: Sources = (frozenset(),)


@dataclass(frozen=True, slots=True)
class RunRows:
    """Rows of one run, with the answers to them so far."""

    records: pa.RecordBatch
    answers: Sequence[RunAnswers]  # one for each lookup
    rows: RowPositions  # ascending


@dataclass(frozen=True, slots=True)
class Failed:
    """The records of a run for which a lookup ended with this outcome, and the error codes."""

    run: RunId
    lookup: int
    outcome: Outcome
    records: int
    codes: tuple[ErrorCode, ...]
    has_expired: bool = False  # at the deadline of the records, without an answer


@dataclass(frozen=True, slots=True)
class LookupRows:
    """One lookup of some rows of a run."""

    run: RunId
    lookup: int
    rows: RowPositions  # ascending


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
    whole: RunRows
    times: RunTimes
    row_bytes: int
    rows_left: int
    unanswered: LookupCounts | None  # [rows] lookups without an answer; None: there is one lookup
    waits_for: dict[int, LookupCounts]  # {lookup: [rows] lookups before it without an answer}
    slices: list[tuple[SlotId, Rows]]


class RecordsInFlight:
    """The records of one operator, bounded by the places of the queue and by the byte budget.

    A record is complete when each lookup of it has an answer.
    """

    def __init__(
        self, queue: ElementQueue, budget: ByteBudget, sources: Sources = ONE_LOOKUP
    ) -> None:
        self.queue = queue  # for reading only
        self._budget = budget
        self._sources = sources
        self._ids = count(1)
        self._pending: dict[RunId, _Pending] = {}  # with rows that have not left
        self._origins: dict[SlotId, tuple[RunId, int]] = {}  # {slice: run, first row}
        self._watermarks: dict[SlotId, int] = {}  # {mark: milliseconds}
        self.passed_ms: int | None = None  # the last watermark that has left

    @property
    def size(self) -> int:
        """The number of records and watermarks that have not left."""
        return self.queue.capacity - self.queue.free_places()

    def next_run(self, intake: BatchIntake, *, row_bytes: int) -> Run | None:
        """The next run of a batch that enters the queue; None while the room is too small."""
        places = self.queue.free_places()
        rows = self._budget.rows_that_fit(row_bytes)
        least = min(intake.places_left, max(self.queue.capacity // _MIN_RUN_DIVISOR, 1))
        if not rows or places < least:
            return None
        return intake.next_run(places=places, rows=rows)

    def put_run(
        self, run: Run, whole: RunRows, times: RunTimes, *, key_hashes: KeyHashes | None = None
    ) -> RunId:
        """Add a run of `next_run`, with its records, and answers without a key for each lookup.

        `key_hashes`, one for each record, are required by `KeyOrderedQueue`.
        """
        run_id = RunId(next(self._ids))
        slices: list[tuple[SlotId, Rows]] = []
        for element in run.elements:
            if isinstance(element, Cut):
                self._watermarks[self._put(Mark())] = element.watermark_ms
                continue
            rows = Rows(element.start - run.rows.start, element.stop - run.rows.start)
            added = Slice(rows.stop - rows.start, times.deadline_s)
            if key_hashes is not None:
                added = replace(added, key_hashes=key_hashes[rows.start : rows.stop])
            slot = self._put(added)
            slices.append((slot, rows))
            self._origins[slot] = (run_id, rows.start)
        if size := whole.records.num_rows:
            lookups = len(whole.answers)
            pending = self._pending[run_id] = _Pending(
                whole=whole,
                times=times,
                row_bytes=whole.records.nbytes // size,
                rows_left=size,
                unanswered=None if lookups == 1 else np.full(size, lookups, np.uint16),
                waits_for={
                    lookup: np.full(size, len(sources), np.uint16)
                    for lookup, sources in enumerate(self._sources)
                    if sources
                },
                slices=slices,
            )
            self._budget.add_rows(size, row_bytes=pending.row_bytes)
        return run_id

    def run_of(self, run_id: RunId) -> RunRows:
        """All records of a run that has not left wholly."""
        return self._pending[run_id].whole

    def times_of(self, run_id: RunId) -> RunTimes:
        """The times of a run that has not left wholly."""
        return self._pending[run_id].times

    def store(self, run_id: RunId, lookup: int, answer: Answer) -> Progress:
        """Store an answer; returns the records that it fails, and those that it makes ready.

        A late answer is ignored.
        """
        pending = self._pending.get(run_id)
        if pending is None:
            return Progress()
        answers = pending.whole.answers[lookup]
        known_bytes = answers.found_rows.total_bytes
        rows = answers.store(answer)
        if rows is None:
            return Progress()
        added_bytes = answers.found_rows.total_bytes - known_bytes
        self._learn_size(pending, rows, answer_bytes=added_bytes)
        self._on_answered(pending, rows)
        failures = [outcome for outcome in _FAILURES if (answer.outcomes == outcome).any()]
        failed: list[Failed] = []
        if failures:
            ended = LookupRows(run_id, lookup, np.flatnonzero(rows))
            failed = [self._failed(ended, outcome) for outcome in failures]
        return Progress(tuple(failed), tuple(self._ready(run_id, lookup, rows)))

    def miss(self, absent: LookupRows) -> Progress:
        """Answer rows that were not looked up, and whose key no row matches; as `store`."""
        answers = self.run_of(absent.run).answers[absent.lookup]
        key = answers.add_keys(absent.rows, np.zeros(len(absent.rows), np.intp), 1)
        return self.store(absent.run, absent.lookup, answers.without_row(key))

    def expire(self, now_s: float) -> list[RunId]:
        """Complete the records of the runs whose deadline is not after `now_s`.

        Before they leave, the caller adds the keys of the `unsent` rows of each of their lookups,
        then gives the lookup up, one after the other: the end of one makes keys of later ones
        known.
        """
        expired = sorted({self._origins[slot][0] for slot in self.queue.expire(now_s)})
        for run_id in expired:
            pending = self._pending[run_id]
            pending.waits_for = {}  # nothing is sent any more
            for answers in pending.whole.answers:
                self._learn_size(pending, answers.unanswered_rows(), answer_bytes=0)
        return expired

    def unsent(self, run_id: RunId, lookup: int) -> LookupRows:
        """The rows of a run whose keys for a lookup were not added."""
        return LookupRows(run_id, lookup, self.run_of(run_id).answers[lookup].rows_without_key())

    def give_up(self, run_id: RunId, lookup: int) -> Failed | None:
        """End the rows of a lookup that wait for an answer as timed out; None without any."""
        answers = self.run_of(run_id).answers[lookup]
        rows = answers.give_up(Outcome.TIMEOUT, ErrorCode.TIMEOUT)
        if rows is None:
            return None
        ended = LookupRows(run_id, lookup, np.flatnonzero(rows))
        return replace(self._failed(ended, Outcome.TIMEOUT), has_expired=True)

    def failed_rows(self, failed: Failed, *, most: int) -> RunRows:
        """A record of each key that failed, of at most `most` keys; before the records leave."""
        run = self.run_of(failed.run)
        rows = run.answers[failed.lookup].first_rows_with(failed.outcome, most=most)
        return replace(run, rows=rows)

    def leaving(self) -> Iterator[RunRows]:
        """Remove all rows that may leave; consecutive rows of one run leave together."""
        together: list[RowPositions] = []
        current: RunId | None = None
        for run_id, rows in self._emitted():
            if run_id != current and current is not None:
                yield self._left(current, together)
                together = []
            current = run_id
            together.append(rows)
        if current is not None:
            yield self._left(current, together)

    def check_invariants(self) -> None:
        """For tests: every slice inside belongs to a run, and the parts agree."""
        self.queue.check_invariants()
        self._budget.check_invariants()
        assert {run_id for run_id, _ in self._origins.values()} == set(self._pending)
        for pending in self._pending.values():
            for answers in pending.whole.answers:
                answers.check_invariants()
            assert 0 < pending.rows_left <= pending.whole.records.num_rows

    def _put(self, element: Slice | Mark) -> SlotId:
        slot = self.queue.try_put(element)
        assert slot is not None  # `next_run` checked the free places
        return slot

    def _ready(self, run_id: RunId, lookup: int, rows: RowMask) -> Iterator[LookupRows]:
        """The rows whose keys for later lookups are known with the answers of this one."""
        for later, waits_for in self._pending[run_id].waits_for.items():
            if lookup in self._sources[later]:
                waits_for[rows] -= 1
                now_ready = np.flatnonzero(rows & (waits_for == 0))
                if len(now_ready):
                    yield LookupRows(run_id, later, now_ready)

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
            self.queue.complete(slot, rows[part.start : part.stop])

    def _failed(self, ended: LookupRows, outcome: Outcome) -> Failed:
        answers = self.run_of(ended.run).answers[ended.lookup]
        records = int(np.count_nonzero(answers.outcomes_at(ended.rows) == outcome))
        codes = tuple(answers.errors_with(outcome))
        return Failed(ended.run, ended.lookup, outcome, records, codes)

    def _learn_size(self, pending: _Pending, rows: RowMask, *, answer_bytes: int) -> None:
        # A row has an answer of each lookup.
        count = np.count_nonzero(rows) / len(pending.whole.answers)
        self._budget.on_answered(count, answer_bytes=answer_bytes)

    def _emitted(self) -> Iterator[tuple[RunId, RowPositions]]:
        while (emission := self.queue.pop_completed()) is not None:
            if emission.slot in self._watermarks:
                self.passed_ms = self._watermarks.pop(emission.slot)
                continue
            run_id, start = self._origins[emission.slot]
            if emission.is_last:
                del self._origins[emission.slot]
            yield run_id, emission.rows + start

    def _left(self, run_id: RunId, parts: list[RowPositions]) -> RunRows:
        pending = self._pending[run_id]
        # Back in the input order; no watermark is between rows that leave together.
        rows = np.sort(np.concatenate(parts)) if len(parts) > 1 else parts[0]
        pending.rows_left -= len(rows)
        self._budget.remove_rows(len(rows), row_bytes=pending.row_bytes)
        if not pending.rows_left:
            del self._pending[run_id]
        return replace(pending.whole, rows=rows)
