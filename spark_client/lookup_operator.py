"""Lookup operator of one partition: records in, enriched records out, in the order of its mode."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from lookup_core.answer import Outcome
from lookup_core.errors import ErrorCode, LookupFailed
from lookup_core.keys.canonical_keys import key_hashes
from lookup_core.operator.as_of import AsOf
from lookup_core.operator.batch_intake import BatchIntake, BatchPool, ByteBudget, Rows, Run
from lookup_core.operator.element_queue import KeyHashes, Positions
from lookup_core.operator.encoded_keys import EncodedKeys, encoded_keys
from lookup_core.operator.event_time_watermarks import MAX_WATERMARK_MS, MIN_EVENT_TIME_MS, Cut
from lookup_core.operator.question import Question
from lookup_core.operator.records_in_flight import Failed, RecordsInFlight
from lookup_core.protocol.sent_lookups import SentKeys
from spark_client.as_of import AsOfPlan
from spark_client.lookup_settings import FailurePolicy, LookupSettings, OutputMode
from spark_client.output_columns import ColumnCasts
from spark_client.transport.interface import LookupChannel

EventTimes = npt.NDArray[np.int64]

_TICKS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def event_times(column: pa.Array) -> EventTimes:
    """Timestamps (rounded down) and whole milliseconds; NULL as the least of all times."""
    milliseconds = _milliseconds(column)
    if column.null_count:
        milliseconds[column.is_null().to_numpy(zero_copy_only=False)] = MIN_EVENT_TIME_MS
    return milliseconds


def latest_event_time(times_ms: EventTimes) -> int | None:
    """The largest of some event times, as `event_times` gives them; None if there is none."""
    largest_ms = int(times_ms.max(initial=MIN_EVENT_TIME_MS))
    return None if largest_ms == MIN_EVENT_TIME_MS else largest_ms


def is_event_time(kind: pa.DataType) -> bool:
    """Whether a column of this type holds event times."""
    return bool(types.is_timestamp(kind) or types.is_integer(kind))


def _milliseconds(column: pa.Array) -> EventTimes:
    ticks = column.cast(pa.int64()).fill_null(0).to_numpy().astype(np.int64)
    if types.is_integer(column.type):
        return ticks
    per_second = _TICKS_PER_SECOND[column.type.unit]
    return ticks * 1000 if per_second == 1 else ticks // (per_second // 1000)


_LONGEST_S = 3600.0  # of one wait: a condition variable takes no infinite timeout
_POOLED = 8  # this part of the bytes that may be in flight is read ahead at most


class Output(Protocol):
    """Makes batches of answered rows."""

    def build(
        self, records: pa.RecordBatch, question: Question, rows: Positions, /
    ) -> pa.RecordBatch:
        """A batch of these rows, ascending."""


@dataclass(frozen=True, slots=True)
class LookupPlan:
    """What one partition does with its records."""

    dimension: str
    key_columns: tuple[int, ...]  # positions in the records
    key: pa.Schema
    casts: ColumnCasts
    output: Output
    settings: LookupSettings
    as_of: AsOfPlan | None = None

    @property
    def columns(self) -> pa.Schema:
        """What a record gets where there is a row."""
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
            settings.mode.new_queue(settings.capacity), ByteBudget(settings.max_bytes)
        )
        self._pool = BatchPool(
            most_rows=settings.capacity, most_bytes=settings.max_bytes // _POOLED
        )
        self._watermarks = (
            None if settings.watermarks is None else settings.watermarks.new_watermarks()
        )

    def next_of(self, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
        """The next batches of a quick input as one, None at its end.

        While it waits with nothing at hand, the service may see the channel idle. Only this wait
        counts: whoever is held up by what comes after it is not idle.
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
        """Take all records of a batch in; what leaves meanwhile. Waits when there is no room.

        Raises LookupFailed as the policies say, and what the channel raises.
        """
        times_ms = self._event_times(batch)
        intake = BatchIntake(batch.num_rows, self._cuts(times_ms))
        row_bytes = batch.nbytes // batch.num_rows
        while intake.places_left:
            run = self._in_flight.next_run(intake, row_bytes=row_bytes)
            if run is not None:
                self._put(run, batch, times_ms)
            self._absorb(0.0 if run is not None else self._time_left_s())
            yield from self._leaving()

    def drain(self) -> Iterator[pa.RecordBatch]:
        """The input has ended: wait for all that is in flight, at most until its deadline."""
        while not self._in_flight.is_empty:
            self._absorb(self._time_left_s())
            yield from self._leaving()
        if self._watermarks is not None:
            self._channel.mark(MAX_WATERMARK_MS)

    def close(self) -> None:
        """Give the channel back; what is still unanswered is cancelled."""
        self._channel.close()

    def _event_times(self, batch: pa.RecordBatch) -> EventTimes | None:
        settings = self._settings.watermarks
        return None if settings is None else event_times(batch.column(settings.column))

    def _cuts(self, times_ms: EventTimes | None) -> list[Cut]:
        if times_ms is None or self._watermarks is None:
            return []
        return self._watermarks.on_batch(times_ms)

    def _put(self, run: Run, batch: pa.RecordBatch, times_ms: EventTimes | None) -> None:
        records = batch.slice(run.rows.start, run.rows.stop - run.rows.start)
        columns = [records.column(index) for index in self._plan.key_columns]
        encoded = encoded_keys(columns, self._plan.key)
        as_of = None if self._plan.as_of is None else self._plan.as_of.of(records)
        question = Question(
            encoded.codes,
            key_count=encoded.keys.num_rows,
            columns=self._plan.columns,
            as_of=as_of,
        )
        deadline_s = self._clock() + self._settings.timeout_s
        question_id = self._in_flight.put(
            run, records, question, deadline_s=deadline_s, key_hashes=self._key_hashes(encoded)
        )
        if records.num_rows:
            latest_ms = _latest_ms(as_of, times_ms, run.rows)
            asked = SentKeys(question_id, encoded.keys, deadline_s, event_time_ms=latest_ms)
            self._channel.ask(asked)
        marks = [element for element in run.elements if isinstance(element, Cut)]
        if marks:
            self._channel.mark(marks[-1].watermark_ms)  # the others stand before it

    def _key_hashes(self, encoded: EncodedKeys) -> KeyHashes | None:
        if self._settings.mode is not OutputMode.KEY_ORDERED:
            return None
        return key_hashes(encoded.keys)[encoded.codes]

    def _absorb(self, timeout_s: float | None) -> None:
        """Take in the answers that came; with none there, wait for some."""
        for answered in self._channel.answers(timeout_s):
            answer = answered.answer
            if answer.rows is not None:
                answer = replace(answer, rows=self._plan.casts.apply(answer.rows))
            for failed in self._in_flight.answer(answered.question, answer):
                self._check(failed)
        for question_id, failed in self._in_flight.expire(self._clock()):
            self._channel.abandon(question_id)
            self._check(failed)

    def _leaving(self) -> Iterator[pa.RecordBatch]:
        for leaving in self._in_flight.leaving():
            parts = leaving.question.pieces(leaving.rows, max_bytes=self._settings.max_bytes)
            for rows in parts:
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
                f" ({_reasons(failed.codes)}); {option} is 'fail'",
            )


def _latest_ms(as_of: AsOf | None, times_ms: EventTimes | None, rows: Rows) -> int | None:
    if as_of is not None:
        return as_of.event_time_ms
    return None if times_ms is None else latest_event_time(times_ms[rows.start : rows.stop])


def _reasons(codes: Sequence[ErrorCode]) -> str:
    return ", ".join(f"{code}: {code.meaning}" for code in codes) or "no reason given"
