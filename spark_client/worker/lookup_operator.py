"""Lookup operator of one partition: records in, enriched records out, in the order of its mode.

Waits for input and answers, and applies the failure policies; the element queue decides the order.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lookup_core.cache.cached_answers import CachedAnswers
from lookup_core.errors import ErrorCode, LookupFailed
from lookup_core.event_time.record_watermarks import (
    MAX_WATERMARK_MS,
    Cut,
    EventTimes,
    EventTimeWatermarks,
    event_times,
    latest_event_time,
)
from lookup_core.keys.canonical_keys import key_hashes, rows_with_null
from lookup_core.operator.batch_intake import BatchIntake, BatchPool, ByteBudget, Run
from lookup_core.operator.element_queue import OrderedQueue
from lookup_core.operator.encoded_keys import encoded_keys
from lookup_core.operator.records_in_flight import (
    Failed,
    LookupRows,
    Progress,
    RecordsInFlight,
    RunRows,
    RunTimes,
)
from lookup_core.operator.row_products import TooManyRows
from lookup_core.operator.segmented_queue import KeyOrderedQueue, UnorderedQueue
from lookup_core.protocol.backlog import ChannelAnswer
from lookup_core.protocol.sent_lookups import RunId, SentKeys
from lookup_core.row_bytes import fixed_row_bytes
from spark_client.lookup_settings import FailurePolicy, OutputMode, PassSettings
from spark_client.transport.connection import ChannelSession
from spark_client.worker.failure_texts import MAX_SHOWN_KEYS, failure_detail, shown_keys
from spark_client.worker.input_thread import InputThread, WakeUp
from spark_client.worker.lookup_plan import LookupPlan
from spark_client.worker.output_columns import Output

_QUEUES: dict[OutputMode, type[OrderedQueue | UnorderedQueue | KeyOrderedQueue]] = {
    OutputMode.ORDERED: OrderedQueue,
    OutputMode.UNORDERED: UnorderedQueue,
    OutputMode.KEY_ORDERED: KeyOrderedQueue,
}
# Time without input. Less would make a steady input idle between batches; more would let one
# stalled partition hold back the watermark of the others for longer.
IDLE_AFTER_S = 5.0
_MAX_WAIT_S = 3600.0


class LookupOperator:
    """Enriches one partition by several lookups at once, each over a channel of its own.

    A record leaves when all of its lookups have answers. A lookup whose key comes from the columns
    of others is sent when those have answers.
    """

    def __init__(
        self,
        plans: Sequence[LookupPlan],
        channels: Sequence[ChannelSession],
        output: Output,
        *,
        settings: PassSettings,
        wake_up: WakeUp,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Plan i uses channel i; all channels and the input set `wake_up`."""
        self._plans = plans
        self._channels = channels
        self._output = output
        self._settings = settings
        self._wake_up = wake_up
        self._clock = clock
        kinds = [kind for plan in plans for kind in plan.columns.types]
        budget = ByteBudget(settings.max_bytes, fixed_row_bytes(kinds))
        queue = _QUEUES[settings.mode](settings.capacity)
        self._in_flight = RecordsInFlight(queue, budget, [plan.sources for plan in plans])
        self._direct = [lookup for lookup, plan in enumerate(plans) if not plan.sources]
        self._later = [lookup for lookup, plan in enumerate(plans) if plan.sources]
        self._pool = BatchPool(most_rows=settings.pooled_rows, most_bytes=settings.pooled_bytes)
        self._batch: _EnteringBatch | None = None
        self._suspended_s = 0.0  # while the consumer had an output; does not count for deadlines
        self._no_input_since_s: float | None = None
        self._passed_ms: int | None = None  # the last watermark sent to later lookups
        self._watermarks: EventTimeWatermarks | None = None
        if settings.event_time is not None:
            self._watermarks = EventTimeWatermarks(
                settings.watermark_delay_ms, settings.watermark_interval_ms
            )

    def enriched(self, batches: InputThread) -> Iterator[pa.RecordBatch]:
        """All records, enriched; each leaves as soon as the mode allows, whatever the input does.

        Raises LookupFailed as the policies say, and the errors of the channels and of the input.
        Closing the iterator keeps the lookups open: see `close`.
        """
        while not self._is_done(batches):
            has_changed = self._take_in(batches)
            has_changed |= self._absorb()
            before = self._in_flight.size
            for output in self._leaving():
                yielded_s = self._clock()
                yield output
                self._suspended_s += self._clock() - yielded_s
            has_changed |= self._in_flight.size < before
            if not has_changed and not self._is_done(batches):
                self._wake_up.wait_and_clear(self._time_left_s())
        if self._watermarks is not None:
            for channel in self._channels:
                channel.mark(MAX_WATERMARK_MS)

    def close(self) -> None:
        """Close the channels, which cancels the unanswered lookups."""
        for channel in self._channels:
            channel.close()

    def _now(self) -> float:
        return self._clock() - self._suspended_s

    def _is_done(self, batches: InputThread) -> bool:
        is_taken_in = batches.is_over and self._batch is None and not self._pool
        return is_taken_in and not self._in_flight.size

    def _take_in(self, batches: InputThread) -> bool:
        """Put the next run of the input in flight; False if there is none, or no room."""
        batch = self._batch or self._next_batch(batches)
        if batch is None:
            return False
        run = self._in_flight.next_run(batch.intake, row_bytes=batch.row_bytes)
        self._batch = batch if batch.intake.places_left else None
        if run is None:
            return False
        self._put_run(run, batch)
        return True

    def _next_batch(self, batches: InputThread) -> "_EnteringBatch | None":
        """The next batches of a quick input as one; None while there is no more."""
        now_s, pool = self._now(), self._pool
        while not pool.is_full and (read := batches.take_batch()) is not None:
            if read.num_rows:
                pool.add_batch(read, now_s=now_s)
        if pool.due_s is None:
            self._on_no_input(batches, now_s)
            return None
        self._no_input_since_s = None
        is_due = pool.is_full or not self._in_flight.size or now_s >= pool.due_s
        return self._entering(pool.take_rows()) if is_due or batches.is_over else None

    def _on_no_input(self, batches: InputThread, now_s: float) -> None:
        if batches.is_over:
            self._no_input_since_s = None
        elif self._no_input_since_s is None:
            self._no_input_since_s = now_s
        elif now_s - self._no_input_since_s >= IDLE_AFTER_S:
            # Later lookups may still be sent for the records in flight.
            waiting = [] if self._in_flight.size else self._later
            for lookup in [*self._direct, *waiting]:
                self._channels[lookup].report_idle()

    def _entering(self, batch: pa.RecordBatch) -> "_EnteringBatch":
        row_bytes, column = batch.nbytes // batch.num_rows, self._settings.event_time
        if column is None or self._watermarks is None:
            return _EnteringBatch(batch, BatchIntake(batch.num_rows, []), row_bytes)
        times_ms = event_times(batch.column(column))
        cuts = self._watermarks.on_batch(times_ms)
        return _EnteringBatch(batch, BatchIntake(batch.num_rows, cuts), row_bytes, times_ms)

    def _put_run(self, run: Run, batch: "_EnteringBatch") -> None:
        start, stop = run.rows.start, run.rows.stop
        records = batch.records.slice(start, stop - start)
        answers = [plan.answers(records) for plan in self._plans]
        whole = RunRows(records, answers, np.arange(records.num_rows))
        keys = [self._plans[lookup].keys_in(whole) for lookup in self._direct]
        hashes = None
        if self._settings.mode is OutputMode.KEY_ORDERED:
            hashes = key_hashes(keys[0])
        latest_ms = (
            None if batch.times_ms is None else latest_event_time(batch.times_ms[start:stop])
        )
        times = RunTimes(self._now() + self._settings.timeout_s, latest_ms)
        run_id = self._in_flight.put_run(run, whole, times, key_hashes=hashes)
        if records.num_rows:
            for lookup, own_keys in zip(self._direct, keys, strict=True):
                self._look_up(LookupRows(run_id, lookup, whole.rows), own_keys)
        cuts = [element for element in run.elements if isinstance(element, Cut)]
        if cuts:  # the last implies the earlier ones
            for lookup in self._direct:
                self._channels[lookup].mark(cuts[-1].watermark_ms)

    def _look_up(self, rows: LookupRows, keys: pa.RecordBatch) -> None:
        """Look up the keys of all rows of a run; only those that are not cached are sent."""
        channel, columns = self._channels[rows.lookup], keys.columns
        found = channel.cached(keys)
        if found is None:
            channel.look_up(self._assign_keys(rows, columns))
            return
        if found.size:
            rows = self._store_cached(rows, found)
            rest = pa.array(rows.rows)
            columns = [column.take(rest) for column in columns] if len(rest) else []
        if len(rows.rows):
            channel.send(self._assign_keys(rows, columns))

    def _store_cached(self, rows: LookupRows, found: CachedAnswers) -> LookupRows:
        """Store answers to the keys of all rows of a run; returns the rows without one."""
        count, answers, rest = len(rows.rows), found.answers, rows.rows[:0]
        if found.size == count:  # the usual case
            known = rows.rows
        else:
            is_open = found.is_open(count)
            known, rest = np.flatnonzero(~is_open), np.flatnonzero(is_open)
            number = (np.cumsum(~is_open) - 1).astype(np.int32)
            answers = [answer.placed(number) for answer in answers]
        # Each row has a key of its own: keys that repeat need not be found among each other.
        stored = self._in_flight.run_of(rows.run).answers[rows.lookup]
        stored.add_keys(known, np.arange(len(known)), len(known))
        for answer in answers:
            self._on_answer(rows.lookup, ChannelAnswer(rows.run, answer))
        return replace(rows, rows=rest)

    def _assign_keys(self, rows: LookupRows, columns: Sequence[pa.Array]) -> SentKeys:
        """Assign their distinct keys to rows that had none, and return these keys."""
        plan, times = self._plans[rows.lookup], self._in_flight.times_of(rows.run)
        encoded = encoded_keys(columns, plan.key)
        answers = self._in_flight.run_of(rows.run).answers[rows.lookup]
        start = answers.add_keys(rows.rows, encoded.key_of_row, len(encoded))
        latest_ms = times.latest_ms if plan.as_of is None else answers.latest_ms
        deadline_s = times.deadline_s + self._suspended_s
        return SentKeys(rows.run, encoded.keys, deadline_s, start, latest_ms)

    def _assign_later_keys(self, rows: LookupRows) -> SentKeys | None:
        """As `_assign_keys`, once the sources have ended; a key with a NULL is missing at once."""
        run = replace(self._in_flight.run_of(rows.run), rows=rows.rows)
        columns = self._plans[rows.lookup].keys_of(run)
        has_null = rows_with_null(columns)
        if has_null is not None:
            self._go_on(self._in_flight.miss(replace(rows, rows=rows.rows[has_null])))
            rows = replace(rows, rows=rows.rows[~has_null])
            columns = [column.filter(pa.array(~has_null)) for column in columns]
        return self._assign_keys(rows, columns) if len(rows.rows) else None

    def _absorb(self) -> bool:
        """Take in the answers that have come; False if there are none."""
        has_changed = False
        for lookup, channel in enumerate(self._channels):
            for answered in channel.answers(0.0):
                has_changed = True
                self._on_answer(lookup, answered)
        for run_id in self._in_flight.expire(self._now()):
            has_changed = True
            for lookup in range(len(self._plans)):
                self._give_up(run_id, lookup)
        return has_changed

    def _give_up(self, run_id: RunId, lookup: int) -> None:
        unsent = self._in_flight.unsent(run_id, lookup)
        if len(unsent.rows):
            self._assign_later_keys(unsent)  # they time out, and are not sent
        failed = self._in_flight.give_up(run_id, lookup)
        if failed is not None:
            self._channels[lookup].abandon(run_id)
            self._check(failed)

    def _on_answer(self, lookup: int, answered: ChannelAnswer) -> None:
        answer = answered.answer
        if answer.rows is not None:
            answer = replace(answer, rows=self._plans[lookup].rows(answer.rows))
        self._go_on(self._in_flight.store(answered.run, lookup, answer))

    def _go_on(self, progress: Progress) -> None:
        for failed in progress.failed:
            self._check(failed)
        for ready in progress.ready:
            keys = self._assign_later_keys(ready)
            if keys is not None:
                self._channels[ready.lookup].look_up(keys)

    def _leaving(self) -> Iterator[pa.RecordBatch]:
        for leaving in self._in_flight.leaving():
            try:
                yield from self._output.batches(leaving, max_bytes=self._settings.max_bytes)
            except TooManyRows as error:
                record = replace(leaving, rows=np.array([error.record]))
                expanding = [plan for plan in self._plans if plan.expands]
                shown = ", ".join(f"{each.dimension!r}{_shown(each, record)}" for each in expanding)
                error.add_remedy(f"lookups: {shown}")
                raise
        passed_ms = self._in_flight.passed_ms
        if passed_ms is not None and passed_ms != self._passed_ms:
            # Only now: no later lookup will be sent for the records before it.
            self._passed_ms = passed_ms
            for lookup in self._later:
                self._channels[lookup].mark(passed_ms)

    def _time_left_s(self) -> float:
        """Until something happens that does not set `wake_up`."""
        due_s = [self._in_flight.queue.next_deadline()]
        if self._batch is None:
            due_s.append(self._pool.due_s)
        now_s = self._now()
        if self._no_input_since_s is not None and now_s < self._no_input_since_s + IDLE_AFTER_S:
            due_s.append(self._no_input_since_s + IDLE_AFTER_S)
        left_s = (max(each - now_s, 0.0) for each in due_s if each is not None)
        return min(left_s, default=_MAX_WAIT_S)

    def _check(self, failed: Failed) -> None:
        """Raise LookupFailed if the policy of the lookup says so."""
        plan, channel = self._plans[failed.lookup], self._channels[failed.lookup]
        policy = plan.settings.policy(failed.outcome)
        if policy is not FailurePolicy.FAIL or not failed.records:
            return
        rows = self._in_flight.failed_rows(failed, most=MAX_SHOWN_KEYS + 1)
        detail = failure_detail(
            failed,
            plan.dimension,
            keys=_shown(plan, rows),
            timeout_s=self._settings.timeout_s,
            reasons=[f"{code}: {channel.explanation(code)}" for code in failed.codes],
        )
        raise LookupFailed(failed.codes[0] if failed.codes else ErrorCode.INTERNAL, detail)


@dataclass(frozen=True, slots=True)
class _EnteringBatch:
    """A batch that enters the queue, run by run."""

    records: pa.RecordBatch
    intake: BatchIntake
    row_bytes: int  # the mean
    times_ms: EventTimes | None = None


def _shown(plan: LookupPlan, run: RunRows) -> str:
    """The keys of some rows for people; nothing without `show_keys`."""
    return shown_keys(plan.keys_of(run)) if plan.settings.show_keys else ""
