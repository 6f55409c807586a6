"""Lookup operator of one partition: records in, enriched records out, in the order of its mode.

Waits for answers and applies the failure policies; the order is decided by the element queue.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from lookup_core.answer import Outcome
from lookup_core.errors import ErrorCode, LookupFailed
from lookup_core.keys.canonical_keys import key_hashes
from lookup_core.operator.as_of import AsOf
from lookup_core.operator.batch_intake import BatchIntake, BatchPool, ByteBudget, Rows, Run
from lookup_core.operator.element_queue import OrderedQueue
from lookup_core.operator.encoded_keys import encoded_keys
from lookup_core.operator.event_time_watermarks import (
    MAX_WATERMARK_MS,
    MIN_EVENT_TIME_MS,
    Cut,
    EventTimeWatermarks,
)
from lookup_core.operator.question import Question
from lookup_core.operator.records_in_flight import Failed, RecordsInFlight
from lookup_core.operator.segmented_queue import KeyOrderedQueue, UnorderedQueue
from lookup_core.protocol.sent_lookups import SentKeys
from spark_client.as_of import AsOfPlan
from spark_client.lookup_settings import FailurePolicy, LookupSettings, OutputMode
from spark_client.output_columns import ColumnCasts, Output
from spark_client.transport.interface import LookupChannel

EventTimes = npt.NDArray[np.int64]

_QUEUES: dict[OutputMode, type[OrderedQueue | UnorderedQueue | KeyOrderedQueue]] = {
    OutputMode.ORDERED: OrderedQueue,
    OutputMode.UNORDERED: UnorderedQueue,
    OutputMode.KEY_ORDERED: KeyOrderedQueue,
}
_LONGEST_S = 3600.0  # of one wait: a condition variable takes no infinite timeout
_KEYS_SHOWN = 3  # of a failed lookup, in its error
_MAX_SHOWN_CHARACTERS = 60  # of each value of a key
_MAX_SHOWN_VALUES = 8  # of a composite key
_POOLED = 8  # at most this part of `max_bytes` is read ahead
_TICKS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


@dataclass(frozen=True, slots=True)
class LookupPlan:
    """The lookup of one partition: its keys, casts, output and settings."""

    dimension: str
    key_columns: tuple[int, ...]  # positions in the records
    key: pa.Schema
    casts: ColumnCasts
    output: Output
    settings: LookupSettings
    as_of: AsOfPlan | None = None

    @property
    def columns(self) -> pa.Schema:
        """The columns of one row."""
        return self.casts.target if self.as_of is None else self.as_of.pick.columns


class LookupOperator:
    """Enriches the batches of one partition over one channel, which it closes."""

    def __init__(
        self,
        plan: LookupPlan,
        channel: LookupChannel,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        settings = plan.settings
        self._plan = plan
        self._settings = settings
        self._channel = channel
        self._clock = clock
        self._in_flight = RecordsInFlight(
            _QUEUES[settings.mode](settings.capacity), ByteBudget(settings.max_bytes)
        )
        self._pool = BatchPool(
            most_rows=settings.capacity, most_bytes=settings.max_bytes // _POOLED
        )
        self._watermarks: EventTimeWatermarks | None = None
        if settings.event_time is not None:
            self._watermarks = EventTimeWatermarks(
                settings.watermark_delay_ms, settings.watermark_interval_ms
            )

    def next_of(self, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
        """The next batches of a quick input as one, None at its end.

        A long wait for the first of them makes the channel idle; waits for answers do not.
        """
        while self._pool.wants_more:
            begun_s = self._clock()
            with nullcontext() if self._pool else self._channel.awaiting_input():
                batch = next(batches, None)
            if batch is None:
                break
            self._pool.add(batch, waited_s=self._clock() - begun_s)
        return self._pool.take()

    def take_in(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take in all records of a batch, and yield what leaves; waits while there is no room.

        Raises LookupFailed as the policies say, and the errors of the channel.
        """
        times_ms, cuts = self._cuts(batch)
        intake = BatchIntake(batch.num_rows, cuts)
        row_bytes = batch.nbytes // batch.num_rows
        while intake.places_left:
            run = self._in_flight.next_run(intake, row_bytes=row_bytes)
            if run is not None:
                self._put(run, batch, times_ms)
            self._absorb(0.0 if run is not None else self._time_left_s())
            yield from self._leaving()

    def drain(self) -> Iterator[pa.RecordBatch]:
        """End of the input: yield the records in flight, which waits at most until their deadline.

        Raises as `take_in` does.
        """
        while not self._in_flight.is_empty:
            self._absorb(self._time_left_s())
            yield from self._leaving()
        if self._watermarks is not None:
            self._channel.mark(MAX_WATERMARK_MS)

    def close(self) -> None:
        """Close the channel, which cancels the unanswered lookups."""
        self._channel.close()

    def _cuts(self, batch: pa.RecordBatch) -> tuple[EventTimes | None, list[Cut]]:
        column = self._settings.event_time
        if column is None or self._watermarks is None:
            return None, []
        times_ms = event_times(batch.column(column))
        return times_ms, self._watermarks.on_batch(times_ms)

    def _put(self, run: Run, batch: pa.RecordBatch, times_ms: EventTimes | None) -> None:
        plan = self._plan
        records = batch.slice(run.rows.start, run.rows.stop - run.rows.start)
        encoded = encoded_keys([records.column(index) for index in plan.key_columns], plan.key)
        hashes = None
        if self._settings.mode is OutputMode.KEY_ORDERED:
            hashes = key_hashes(encoded.keys)[encoded.codes]
        as_of = None if plan.as_of is None else plan.as_of.of(records)
        count = encoded.keys.num_rows
        question = Question(encoded.codes, key_count=count, columns=plan.columns, as_of=as_of)
        deadline_s = self._clock() + self._settings.timeout_s
        question_id = self._in_flight.put(
            run, records, question, deadline_s=deadline_s, key_hashes=hashes
        )
        if records.num_rows:
            latest_ms = _latest_ms(as_of, times_ms, run.rows)
            keys = SentKeys(question_id, encoded.keys, deadline_s, event_time_ms=latest_ms)
            self._channel.look_up(keys)
        marks = [element for element in run.elements if isinstance(element, Cut)]
        if marks:
            self._channel.mark(marks[-1].watermark_ms)  # it implies the earlier ones

    def _absorb(self, timeout_s: float | None) -> None:
        """Take in the answers that have come; wait for some if there are none."""
        for answered in self._channel.answers(timeout_s):
            answer = answered.answer
            if answer.rows is not None:
                answer = replace(answer, rows=self._plan.casts.apply(answer.rows))
            for failed in self._in_flight.answer(answered.question, answer):
                self._check(failed)
        for failed in self._in_flight.expire(self._clock()):
            self._channel.abandon(failed.question)
            self._check(failed)

    def _leaving(self) -> Iterator[pa.RecordBatch]:
        for leaving in self._in_flight.leaving():
            for rows in leaving.question.pieces(leaving.rows, max_bytes=self._settings.max_bytes):
                output = self._plan.output.build(leaving.records, leaving.question, rows)
                if output.num_rows:
                    yield output

    def _time_left_s(self) -> float | None:
        deadline_s = self._in_flight.next_deadline()
        return None if deadline_s is None else min(max(deadline_s - self._clock(), 0.0), _LONGEST_S)

    def _check(self, failed: Failed) -> None:
        is_timeout = failed.outcome is Outcome.TIMEOUT
        policy = self._settings.on_timeout if is_timeout else self._settings.on_error
        if policy is FailurePolicy.FAIL and failed.records:
            option, how = ("on_timeout", "timed out") if is_timeout else ("on_error", "failed")
            raise LookupFailed(
                failed.codes[0] if failed.codes else ErrorCode.INTERNAL,
                f"{failed.records} lookups of {self._plan.dimension!r} {how}"
                f" ({_reasons(failed.codes)}){self._failed_keys(failed)}; {option} is 'fail':"
                f' {option}="null" keeps these records, with nulls; with lookup_join,'
                " status_column adds the reason to each record",
            )

    def _failed_keys(self, failed: Failed) -> str:
        if not self._settings.show_keys:
            return ""
        records = self._in_flight.failed_records(failed, most=_KEYS_SHOWN + 1)
        columns = [records.column(index).to_pylist() for index in self._plan.key_columns]
        keys = [_shown(key) for key in zip(*columns, strict=True)]
        more = ", …" if len(keys) > _KEYS_SHOWN else ""
        return f": {'keys' if keys[1:] else 'key'} {', '.join(keys[:_KEYS_SHOWN])}{more}"


def _latest_ms(as_of: AsOf | None, times_ms: EventTimes | None, rows: Rows) -> int | None:
    if as_of is not None:
        return as_of.event_time_ms
    return None if times_ms is None else latest_event_time(times_ms[rows.start : rows.stop])


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


def _reasons(codes: Sequence[ErrorCode]) -> str:
    return ", ".join(f"{code}: {code.meaning}" for code in codes) or "no reason given"


def event_times(column: pa.Array) -> EventTimes:
    """Milliseconds of timestamps (rounded down) and whole numbers; NULL is the least time."""
    times_ms = column.cast(pa.int64()).fill_null(0).to_numpy().astype(np.int64)
    if types.is_timestamp(column.type):
        per_second = _TICKS_PER_SECOND[column.type.unit]
        times_ms = times_ms * 1000 if per_second == 1 else times_ms // (per_second // 1000)
    if column.null_count:
        times_ms[column.is_null().to_numpy(zero_copy_only=False)] = MIN_EVENT_TIME_MS
    return times_ms


def latest_event_time(times_ms: EventTimes) -> int | None:
    """The largest of some event times, as `event_times` gives them; None if there is none."""
    largest_ms = int(times_ms.max(initial=MIN_EVENT_TIME_MS))
    return None if largest_ms == MIN_EVENT_TIME_MS else largest_ms


def is_event_time(kind: pa.DataType) -> bool:
    """Whether a column of this type holds event times."""
    return bool(types.is_timestamp(kind) or types.is_integer(kind))
