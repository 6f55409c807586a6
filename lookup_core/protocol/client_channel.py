"""One channel as the client sees it: credit, what waits for it, and what has no answer yet.

Methods take what happened and return the frames to send, never one that the service would refuse in
the channel's state. No connection: after `on_lost` and `open` everything without an answer goes out
again (lookups are reads, so that is harmless).
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np
import pyarrow as pa

from lookup_core.answer import Answer, Outcome
from lookup_core.dimension_schema import VersionColumns
from lookup_core.errors import ErrorCode, InvalidRequest, ProtocolViolation
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import (
    ROWLESS,
    answer_from_batch,
    decode_batch,
    encode_batch,
    result_schema,
)
from lookup_core.protocol.backlog import Backlog, ChannelAnswer
from lookup_core.protocol.client_credit import ClientCredit
from lookup_core.protocol.frames import Frame
from lookup_core.protocol.sent_lookups import QuestionId, SentKeys, SentLookups, SentWatermark
from lookup_core.protocol.trace_parent import TraceParent

_MAX_TIMEOUT_MS = 2**32 - 1
_WITH_ROW = np.isin(np.arange(256), [outcome for outcome in Outcome if outcome.has_row])
_WITHOUT_ROW = np.isin(np.arange(256), [outcome for outcome in Outcome if not outcome.has_row])


@dataclass(frozen=True, slots=True)
class ChannelRequest:
    """What a channel is opened for."""

    dimension: str
    columns: tuple[str, ...] | None  # None: all that the dimension offers
    origin: str
    key: pa.Schema
    # Rows are lists of versions, with the columns that say when each is valid.
    is_as_of: bool = False
    trace: TraceParent | None = None  # that its lookups belong to


@dataclass(frozen=True, slots=True)
class ChannelStatistics:
    """Levels of one channel."""

    credit_records: int
    credit_bytes: int
    in_flight_records: int  # sent, without their last answer
    backlog_records: int  # held back for want of credit


class _State(Enum):
    """What the service knows of the channel, on the connection that stands if there is one."""

    FREE = auto()  # nothing: only OPEN may be sent
    OPENING = auto()  # OPEN: nothing may be sent until it is answered
    OPEN = auto()  # its OPENED has come: everything may be sent, LOOKUP within the credit
    LEAVING = auto()  # its GOAWAY has come: answers still come, only CANCEL may be sent


class ClientChannel:
    """Sends no more than the credit allows, and keeps what it has sent until it is answered."""

    def __init__(self, number: int, request: ChannelRequest) -> None:
        self.number = number
        self.request = request
        self.columns: pa.Schema | None = None  # known once opened
        self.key: tuple[str, ...] = ()  # as above: the names of its columns
        self.versions: VersionColumns | None = None  # as above
        self._waits = False  # as above, and what the service said last
        self._state = _State.FREE
        self._is_silent = False  # nothing new is asked or marked
        self._is_told_idle = False  # on this connection
        self._credit = ClientCredit()
        self._backlog = Backlog()
        self._sent = SentLookups()
        self._refused: list[ChannelAnswer] = []

    def open(self) -> frames.Open:
        """Ask for the channel, for the first time or on a new connection."""
        self.on_lost()
        self._state = _State.OPENING
        # Sequences begin at 1 again: answers of the former connection must have been taken.
        self._backlog.put_back(self._sent.restart())
        request = self.request
        return frames.Open(
            self.number,
            request.dimension,
            request.columns,
            request.origin,
            request.key,
            request.is_as_of,
            request.trace,
        )

    def on_opened(self, opened: frames.Opened, *, now_s: float) -> list[Frame]:
        """The channel stands; send what waits, unless the connection is being left.

        Raises InvalidRequest if the columns are others than before, ProtocolViolation if the
        channel was not requested.
        """
        if self._state is _State.FREE:
            raise ProtocolViolation(ErrorCode.BAD_FRAME, "OPENED without OPEN")
        if self.columns is not None and not self._is_as_before(opened):
            raise InvalidRequest(
                ErrorCode.SCHEMA_CHANGED,
                f"the columns of {self.request.dimension!r} changed while it was looked up",
            )
        self.columns = opened.columns
        self.key = opened.key
        self.versions = opened.versions
        self._waits = opened.waits
        if self._state is _State.LEAVING:
            return []
        self._state = _State.OPEN
        self._is_told_idle = False
        self._credit.restart(opened.credit_records, opened.credit_bytes)
        self._refused += self._backlog.refuse_too_large(self._credit.exclusive_bytes)
        return self._send(now_s)

    def on_credit(self, credit: frames.Credit, *, now_s: float) -> list[Frame]:
        """More may be sent; send what waits."""
        if self._state is not _State.OPEN:
            return []
        self._credit.add(credit.records, credit.bytes)
        return self._send(now_s)

    def on_result(self, result: frames.Result) -> ChannelAnswer | None:
        """The answers in a frame; None if nobody waits for them any more.

        Raises ProtocolViolation for a payload that is not an answer to what was asked.
        """
        asked = self._sent.get(result.sequence)
        if asked is None:
            return None
        answer = self._decoded(result)
        _check_outcomes(answer)
        self._sent.on_answer(result.sequence, answer.positions, is_last=result.is_last)
        if result.is_last:
            self._credit.settle(result.sequence)
        return ChannelAnswer(asked.question, answer.moved(asked.start))

    def ask(self, asked: SentKeys, *, now_s: float) -> list[Frame]:
        """Look these distinct keys up, now or when there is credit.

        Keys that are too large for the channel are answered by `pop_refused`.
        """
        self._is_silent = False
        if self._state is _State.OPEN:
            self._refused += self._backlog.add_fitting(asked, self._credit.exclusive_bytes)
        else:  # nobody has said what is too large
            self._backlog.add(asked)
        return self._send(now_s)

    def mark(self, watermark_ms: int, *, now_s: float) -> list[Frame]:
        """Tell the watermark, behind all that was asked before it."""
        self._is_silent = False
        self._backlog.add(SentWatermark(watermark_ms))
        return self._send(now_s)

    def on_silence(self, *, now_s: float) -> list[Frame]:
        """The input is silent: tell idle, until something is asked or marked. Harmless twice.

        A backlog is told first; on a new connection it is told again.
        """
        self._is_silent = True
        return self._send(now_s)

    def abandon(self, question: QuestionId, *, now_s: float) -> list[Frame]:
        """Nobody waits for this question any more: cancel what was sent, drop what was not."""
        self._backlog.drop(question)
        sequences = self._sent.sequences_of(question)
        for sequence in sequences:
            self._sent.remove(sequence)
            self._credit.settle(sequence)
        # What stood behind it may fit the credit.
        return [*self._cancels(sequences), *self._send(now_s)]

    def resume(self, *, now_s: float) -> list[Frame]:
        """Lookups have ended: what was not worth a frame may be now."""
        return self._send(now_s)

    def pop_refused(self) -> list[ChannelAnswer]:
        """Answers to keys that are not sent at all, each once."""
        refused, self._refused = self._refused, []
        return refused

    def close(self) -> list[Frame]:
        """Give the channel back: cancel what is unanswered, drop what waits.

        Nothing is sent on a channel that does not stand: the service would not know it.
        """
        is_open = self._state is _State.OPEN
        cancels = self._cancels(self._sent.unanswered_sequences())
        self._backlog.clear()
        self._sent.restart()
        self.on_lost()
        return [*cancels, frames.Close(self.number)] if is_open else []

    def pause(self) -> None:
        """Send nothing but CANCEL until the next `open`, as after GOAWAY; answers still come."""
        if self._state is not _State.FREE:
            self._state = _State.LEAVING
        self._credit.restart(0, 0)

    def on_lost(self) -> None:
        """The service does not know the channel any more: send nothing until it is open again.

        What came before may still be passed to `on_result`, until `open`. Harmless twice.
        """
        self._state = _State.FREE
        self._credit.restart(0, 0)

    @property
    def is_quiet(self) -> bool:
        """Whether no answer is to come: every lookup has its own, or the channel is gone."""
        return self._state is _State.FREE or not self._sent.record_count

    def statistics(self) -> ChannelStatistics:
        """A snapshot."""
        return ChannelStatistics(
            credit_records=self._credit.records,
            credit_bytes=self._credit.bytes,
            in_flight_records=self._sent.record_count,
            backlog_records=self._backlog.records,
        )

    def check_invariants(self) -> None:
        """For tests: credit is never negative, and the backlog waits for credit only."""
        self._sent.check_invariants()
        self._credit.check_invariants()
        self._backlog.check_invariants()
        if self._state is _State.OPEN and self._backlog:
            assert isinstance(self._backlog.head, SentKeys)
        if self._state is _State.OPENING:
            assert not self._sent.record_count

    def _cancels(self, sequences: Iterable[int]) -> list[Frame]:
        if self._state not in {_State.OPEN, _State.LEAVING}:
            return []
        return [frames.Cancel(self.number, sequence) for sequence in sequences]

    def _send(self, now_s: float) -> list[Frame]:
        if self._state is not _State.OPEN:
            return []
        return [*self._status(), *self._backlog_sent(now_s), *self._status()]

    def _status(self) -> list[Frame]:
        is_idle = self._is_silent and not self._backlog
        if is_idle == self._is_told_idle:
            return []
        self._is_told_idle = is_idle
        return [frames.Status(self.number, is_idle)]

    def _backlog_sent(self, now_s: float) -> list[Frame]:
        sending: list[Frame] = []
        while self._backlog:
            head = self._backlog.head
            if isinstance(head, SentWatermark):
                self._backlog.pop()
                self._sent.mark(head)
                sending.append(frames.Watermark(self.number, head.watermark_ms))
                continue
            lookup = self._lookup(head, now_s)
            if lookup is None:
                break
            sending.append(lookup)
        return sending

    def _lookup(self, head: SentKeys, now_s: float) -> frames.Lookup | None:
        count, payload = self._what_credit_allows(head)
        if not count:
            return None
        sequence = self._sent.add(self._backlog.take(head, count))
        self._credit.spend(sequence, records=count, size=len(payload))
        return frames.Lookup(
            channel=self.number,
            sequence=sequence,
            timeout_ms=_timeout_ms(head.deadline_s, now_s),
            backlog_records=self._backlog.records,
            payload=payload,
            # Another service may not know that lookups have times.
            event_time_ms=head.event_time_ms if self._waits else None,
        )

    def _is_as_before(self, opened: frames.Opened) -> bool:
        assert self.columns is not None
        return self.columns.equals(opened.columns) and self.versions == opened.versions

    def _what_credit_allows(self, head: SentKeys) -> tuple[int, memoryview]:
        count = self._credit.records_to_send(head.count)
        payload = memoryview(b"")
        while count:
            payload = encode_batch(head.split(count)[0].keys)
            if len(payload) <= self._credit.lookup_bytes:
                break
            count = self._credit.records_within(count, len(payload))
        return count, payload

    def _decoded(self, result: frames.Result) -> Answer:
        assert self.columns is not None  # a sequence was sent, so the channel stood
        schema = result_schema(self.columns) if result.has_rows else ROWLESS
        return answer_from_batch(decode_batch(result.payload, schema), has_rows=result.has_rows)


def _check_outcomes(answer: Answer) -> None:
    expected = _WITH_ROW if answer.rows is not None else _WITHOUT_ROW
    if not expected[answer.outcomes].all():
        raise ProtocolViolation(ErrorCode.BAD_FRAME, "outcomes and rows contradict each other")


def _timeout_ms(deadline_s: float, now_s: float) -> int:
    left_ms = (deadline_s - now_s) * 1000
    return _MAX_TIMEOUT_MS if left_ms > _MAX_TIMEOUT_MS else max(math.ceil(left_ms), 1)
