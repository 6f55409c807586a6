"""Lookup operator of one partition: records in, enriched records out, in the order of its mode.

Waits for input and answers, and applies the failure policies; the element queue decides the order.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lookup_core.answer import Outcome
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
from lookup_core.operator.encoded_keys import EncodedKeys, encoded_keys
from lookup_core.operator.question import Question
from lookup_core.operator.records_in_flight import (
    Failed,
    Leaving,
    LookupRows,
    Progress,
    RecordsInFlight,
    RunTimes,
)
from lookup_core.operator.row_products import TooManyRows, even_lists
from lookup_core.operator.segmented_queue import KeyOrderedQueue, UnorderedQueue
from lookup_core.protocol.backlog import ChannelAnswer
from lookup_core.protocol.sent_lookups import QuestionId, SentKeys
from lookup_core.row_bytes import fixed_row_bytes
from spark_client.lookup_settings import (
    FailurePolicy,
    KeyColumn,
    LookupSettings,
    OutputMode,
    PassSettings,
)
from spark_client.transport.interface import LookupChannel
from spark_client.worker.as_of import AsOfPlan
from spark_client.worker.input_thread import Doorbell, Input
from spark_client.worker.output_columns import ColumnCasts, Output

_QUEUES: dict[OutputMode, type[OrderedQueue | UnorderedQueue | KeyOrderedQueue]] = {
    OutputMode.ORDERED: OrderedQueue,
    OutputMode.UNORDERED: UnorderedQueue,
    OutputMode.KEY_ORDERED: KeyOrderedQueue,
}
# Time without input. Less would make a steady input idle between batches; more would let one
# stalled partition hold back the watermark of the others for longer.
IDLE_AFTER_S = 5.0
_LONGEST_S = 3600.0  # of one wait
_KEYS_SHOWN = 3  # of a failed lookup, in its error
_MAX_SHOWN_CHARACTERS = 60  # of each value of a key
_MAX_SHOWN_VALUES = 8  # of a composite key


@dataclass(frozen=True, slots=True)
class LookupPlan:
    """One lookup of a partition: its keys, casts and settings."""

    dimension: str
    key_columns: tuple[KeyColumn, ...]
    key: pa.Schema
    casts: ColumnCasts
    settings: LookupSettings
    as_of: AsOfPlan | None = None
    expands: bool = False  # answers hold lists of rows
    default: pa.RecordBatch | None = None  # the row of missing keys, and of failed lookups

    @property
    def columns(self) -> pa.Schema:
        """The columns of one row."""
        return self.casts.target if self.as_of is None else self.as_of.pick.columns

    @property
    def sources(self) -> frozenset[int]:
        """The lookups whose columns the key needs."""
        lookups = {column.lookup for column in self.key_columns}
        return frozenset(lookup for lookup in lookups if lookup is not None)

    def question(self, records: pa.RecordBatch) -> Question:
        """A question for these records, of which none is asked yet."""
        as_of = None if self.as_of is None else self.as_of.of(records)
        settled = [
            outcome
            for outcome in (Outcome.TIMEOUT, Outcome.ERROR)
            if self.settings.policy(outcome) is FailurePolicy.DEFAULT
        ]
        default = self.default
        defaults = {} if default is None else dict.fromkeys([Outcome.DEFAULT, *settled], default)
        return Question(records.num_rows, self.columns, as_of=as_of, defaults=defaults)

    def rows(self, sent: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of an answer in the output's types; raises InvalidRequest if they do not fit."""
        rows = self.casts.apply(sent)
        return even_lists(rows, dimension=self.dimension) if self.expands else rows

    def keys_of(self, run: Leaving) -> list[pa.Array]:
        """The key's columns for some rows of a run."""
        return [_key_column(run, column) for column in self.key_columns]

    def keys_in(self, run: Leaving) -> pa.RecordBatch:
        """The keys of some rows of a run, as they are sent."""
        return pa.record_batch(self.keys_of(run), schema=self.key)

    def shown_keys(self, run: Leaving) -> str:
        """The first keys of some rows for people, behind a colon; nothing without `show_keys`."""
        if not self.settings.show_keys:
            return ""
        columns = [column.to_pylist() for column in self.keys_of(run)]
        keys = list(map(_shown, zip(*columns, strict=True)))
        more = ", …" if len(keys) > _KEYS_SHOWN else ""
        return f": {'keys' if keys[1:] else 'key'} {', '.join(keys[:_KEYS_SHOWN])}{more}"


def _key_column(run: Leaving, column: KeyColumn) -> pa.Array:
    if column.lookup is not None:
        return run.questions[column.lookup].column_at(run.rows, column.position)
    values = run.records.column(column.position)
    return values if len(run.rows) == len(values) else values.take(pa.array(run.rows))


class LookupOperator:
    """Enriches one partition by several lookups at once, each over a channel of its own.

    A record leaves when all of its lookups have answers. A lookup whose key comes from the columns
    of others is sent when those have answers.
    """

    def __init__(
        self,
        plans: Sequence[LookupPlan],
        channels: Sequence[LookupChannel],
        output: Output,
        *,
        settings: PassSettings,
        bell: Doorbell,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Plan i uses channel i; all channels and the input ring the bell."""
        self._plans = plans
        self._channels = channels
        self._output = output
        self._settings = settings
        self._bell = bell
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
        self._hungry_since_s: float | None = None  # waits for input
        self._passed_ms: int | None = None  # the last watermark sent to later lookups
        self._watermarks: EventTimeWatermarks | None = None
        if settings.event_time is not None:
            self._watermarks = EventTimeWatermarks(
                settings.watermark_delay_ms, settings.watermark_interval_ms
            )

    def enriched(self, batches: Input) -> Iterator[pa.RecordBatch]:
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
                self._bell.wait(self._time_left_s())
        if self._watermarks is not None:
            for channel in self._channels:
                channel.mark(MAX_WATERMARK_MS)

    def close(self) -> None:
        """Close the channels, which cancels the unanswered lookups."""
        for channel in self._channels:
            channel.close()

    def _now(self) -> float:
        return self._clock() - self._suspended_s

    def _is_done(self, batches: Input) -> bool:
        is_taken_in = batches.is_over and self._batch is None and not self._pool
        return is_taken_in and not self._in_flight.size

    def _take_in(self, batches: Input) -> bool:
        """Put the next run of the input in flight; False if there is none, or no room."""
        batch = self._batch or self._next_batch(batches)
        if batch is None:
            return False
        run = self._in_flight.next_run(batch.intake, row_bytes=batch.row_bytes)
        self._batch = batch if batch.intake.places_left else None
        if run is None:
            return False
        self._put(run, batch)
        return True

    def _next_batch(self, batches: Input) -> "_EnteringBatch | None":
        """The next batches of a quick input as one; None while there is no more."""
        now_s, pool = self._now(), self._pool
        while not pool.is_full and (read := batches.take()) is not None:
            if read.num_rows:
                pool.add(read, now_s=now_s)
        if pool.due_s is None:
            self._on_hunger(batches, now_s)
            return None
        self._hungry_since_s = None
        is_due = pool.is_full or not self._in_flight.size or now_s >= pool.due_s
        return self._entering(pool.take()) if is_due or batches.is_over else None

    def _on_hunger(self, batches: Input, now_s: float) -> None:
        if batches.is_over:
            self._hungry_since_s = None
        elif self._hungry_since_s is None:
            self._hungry_since_s = now_s
        elif now_s - self._hungry_since_s >= IDLE_AFTER_S:
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

    def _put(self, run: Run, batch: "_EnteringBatch") -> None:
        start, stop = run.rows.start, run.rows.stop
        records = batch.records.slice(start, stop - start)
        questions = [plan.question(records) for plan in self._plans]
        whole = Leaving(records, questions, np.arange(records.num_rows))
        keys = [self._plans[lookup].keys_in(whole) for lookup in self._direct]
        hashes = None
        if self._settings.mode is OutputMode.KEY_ORDERED:
            hashes = key_hashes(keys[0])
        latest_ms = (
            None if batch.times_ms is None else latest_event_time(batch.times_ms[start:stop])
        )
        times = RunTimes(self._now() + self._settings.timeout_s, latest_ms)
        question = self._in_flight.put(run, records, questions, times=times, key_hashes=hashes)
        if records.num_rows:
            for lookup, each in zip(self._direct, keys, strict=True):
                rows = LookupRows(question, lookup, whole.rows)
                self._look_up(rows, questions[lookup], each)
        marks = [element for element in run.elements if isinstance(element, Cut)]
        if marks:  # the last implies the earlier ones
            for lookup in self._direct:
                self._channels[lookup].mark(marks[-1].watermark_ms)

    def _look_up(self, rows: LookupRows, question: Question, keys: pa.RecordBatch) -> None:
        """Look up the keys of all rows of a run; only those that are not cached are sent."""
        channel, columns = self._channels[rows.lookup], keys.columns
        found = channel.cached(keys)
        if found is not None and found.size:
            rows = self._take_cached(rows, question, found)
            rest = pa.array(rows.rows)
            columns = [column.take(rest) for column in columns] if len(rest) else []
        if len(rows.rows):
            encoded = encoded_keys(columns, self._plans[rows.lookup].key)
            asked = self._asked(rows, question, encoded)
            channel.look_up(asked, skips_cache=found is not None)

    def _take_cached(
        self, rows: LookupRows, question: Question, found: CachedAnswers
    ) -> LookupRows:
        """Take answers to the keys of all rows of a run; returns the rows without one."""
        count, answers, rest = len(rows.rows), found.answers, rows.rows[:0]
        if found.size == count:  # the usual case
            known = rows.rows
        else:
            is_open = found.is_open(count)
            known, rest = np.flatnonzero(~is_open), np.flatnonzero(is_open)
            number = (np.cumsum(~is_open) - 1).astype(np.int32)
            answers = [answer.placed(number) for answer in answers]
        # Each row has a key of its own: keys that repeat need not be found among each other.
        question.ask(known, np.arange(len(known)), len(known))
        for answer in answers:
            self._on_answer(rows.lookup, ChannelAnswer(rows.question, answer))
        return replace(rows, rows=rest)

    def _asked(self, ready: LookupRows, question: Question, keys: EncodedKeys) -> SentKeys:
        start = question.ask(ready.rows, keys.codes, len(keys))
        times = self._in_flight.times_of(ready.question)
        is_as_of = self._plans[ready.lookup].as_of is not None
        latest_ms = question.latest_ms if is_as_of else times.latest_ms
        deadline_s = times.deadline_s + self._suspended_s
        return SentKeys(ready.question, keys.keys, deadline_s, start, latest_ms)

    def _asked_later(self, ready: LookupRows) -> SentKeys | None:
        """The keys of rows whose sources have ended; a key with a NULL is missing at once."""
        run = replace(self._in_flight.run_of(ready.question), rows=ready.rows)
        plan = self._plans[ready.lookup]
        columns = plan.keys_of(run)
        has_null = rows_with_null(columns)
        if has_null is not None:
            self._go_on(self._in_flight.miss(replace(ready, rows=ready.rows[has_null])))
            ready = replace(ready, rows=ready.rows[~has_null])
            columns = [column.filter(pa.array(~has_null)) for column in columns]
        if not len(ready.rows):
            return None
        return self._asked(ready, run.questions[ready.lookup], encoded_keys(columns, plan.key))

    def _absorb(self) -> bool:
        """Take in the answers that have come; False if there are none."""
        has_changed = False
        for lookup, channel in enumerate(self._channels):
            for answered in channel.answers(0.0):
                has_changed = True
                self._on_answer(lookup, answered)
        for question in self._in_flight.expire(self._now()):
            has_changed = True
            for lookup in range(len(self._plans)):
                self._give_up(question, lookup)
        return has_changed

    def _give_up(self, question: QuestionId, lookup: int) -> None:
        unsent = self._in_flight.unsent(question, lookup)
        if len(unsent.rows):
            self._asked_later(unsent)  # too late to be sent
        failed = self._in_flight.give_up(question, lookup)
        if failed is not None:
            self._channels[lookup].abandon(question)
            self._check(failed)

    def _on_answer(self, lookup: int, answered: ChannelAnswer) -> None:
        answer = answered.answer
        if answer.rows is not None:
            answer = replace(answer, rows=self._plans[lookup].rows(answer.rows))
        self._go_on(self._in_flight.answer(answered.question, lookup, answer))

    def _go_on(self, progress: Progress) -> None:
        for failed in progress.failed:
            self._check(failed)
        for ready in progress.ready:
            sent = self._asked_later(ready)
            if sent is not None:
                self._channels[ready.lookup].look_up(sent)

    def _leaving(self) -> Iterator[pa.RecordBatch]:
        for leaving in self._in_flight.leaving():
            try:
                yield from self._output.batches(leaving, max_bytes=self._settings.max_bytes)
            except TooManyRows as error:
                record = replace(leaving, rows=np.array([error.record]))
                expanding = [plan for plan in self._plans if plan.expands]
                shown = ", ".join(
                    f"{each.dimension!r}{each.shown_keys(record)}" for each in expanding
                )
                error.add_remedy(f"lookups: {shown}")
                raise
        passed_ms = self._in_flight.passed_ms
        if passed_ms is not None and passed_ms != self._passed_ms:
            # Only now: no later lookup will be sent for the records before it.
            self._passed_ms = passed_ms
            for lookup in self._later:
                self._channels[lookup].mark(passed_ms)

    def _time_left_s(self) -> float:
        """Until something happens without a ring."""
        due_s = [self._in_flight.next_deadline()]
        if self._batch is None:
            due_s.append(self._pool.due_s)
        now_s = self._now()
        if self._hungry_since_s is not None and now_s < self._hungry_since_s + IDLE_AFTER_S:
            due_s.append(self._hungry_since_s + IDLE_AFTER_S)
        left_s = (max(each - now_s, 0.0) for each in due_s if each is not None)
        return min(left_s, default=_LONGEST_S)

    def _check(self, failed: Failed) -> None:
        plan = self._plans[failed.lookup]
        is_timeout = failed.outcome is Outcome.TIMEOUT
        policy = plan.settings.policy(failed.outcome)
        if policy is FailurePolicy.FAIL and failed.records:
            shown = plan.shown_keys(self._in_flight.failed_rows(failed, most=_KEYS_SHOWN + 1))
            lookups = "1 lookup" if failed.records == 1 else f"{failed.records} lookups"
            what = f'{lookups} of dimension "{plan.dimension}"'
            if is_timeout and not failed.has_expired:
                detail = (
                    f"{what} timed out in the sidecar{shown}; if queries take longer than the"
                    " dimension's timeout, raise that in the configuration, and keep timeout="
                    f" ({self._settings.timeout_s:g} s) above it,"
                    ' or set on_timeout="null" or "default"'
                )
            elif is_timeout:
                detail = (
                    f"{what} had no answer within {self._settings.timeout_s:g} s{shown};"
                    ' raise timeout=, or set on_timeout="null" or "default"'
                )
            else:
                channel = self._channels[failed.lookup]
                reasons = [f"{code}: {channel.explanation(code)}" for code in failed.codes]
                reason = ", ".join(reasons) or "no reason given"
                detail = (
                    f"{what} failed ({reason}){shown}; on_error is 'fail':"
                    ' on_error="null" keeps these records, with nulls, and "default" with the'
                    " default row of the dimension, if it has one; with lookup_join,"
                    " status_column adds the reason to each record"
                )
            code = failed.codes[0] if failed.codes else ErrorCode.INTERNAL
            raise LookupFailed(code, detail)


@dataclass(frozen=True, slots=True)
class _EnteringBatch:
    """A batch that enters the queue, run by run."""

    records: pa.RecordBatch
    intake: BatchIntake
    row_bytes: int  # the mean
    times_ms: EventTimes | None = None


def _shown(key: tuple[object, ...]) -> str:
    """A key for people: one value, or all values of a composite key in parentheses."""
    texts = [repr(value) if isinstance(value, (str, bytes)) else str(value) for value in key]
    shortened = [
        text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}…"
        for text in texts[:_MAX_SHOWN_VALUES]
    ]
    if len(texts) == 1:
        return shortened[0]
    more = ", …" if len(texts) > _MAX_SHOWN_VALUES else ""
    return f"({', '.join(shortened)}{more})"
