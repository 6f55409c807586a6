"""One channel as the client sees it: credit, what waits for it, and what has no answer yet.

Methods take what happened and return the frames to send. No connection: after a loss `open` starts
over, and everything without an answer goes out again (lookups are reads, so that is harmless).
"""

import math
from collections import deque
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lookup_core.answer import Answer
from lookup_core.errors import ErrorCode, InvalidRequest, ProtocolViolation
from lookup_core.outcome import Outcome
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import (
    ROWLESS,
    answer_from_batch,
    decode_batch,
    encode_batch,
    result_schema,
)
from lookup_core.protocol.client_credit import ClientCredit
from lookup_core.protocol.frames import Frame
from lookup_core.protocol.sent_lookups import AskedKeys, QuestionId, SentLookups, SentWatermark

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


@dataclass(frozen=True, slots=True)
class ChannelAnswer:
    """Answers to a question; positions are those of the keys as they were asked."""

    question: QuestionId
    answer: Answer


@dataclass(frozen=True, slots=True)
class ChannelStatistics:
    """Levels of one channel."""

    credit_records: int
    credit_bytes: int
    in_flight_records: int  # sent, without their last answer
    backlog_records: int  # held back for want of credit


class ClientChannel:
    """Sends no more than the credit allows, and keeps what it has sent until it is answered."""

    def __init__(self, number: int, request: ChannelRequest) -> None:
        self.number = number
        self.request = request
        self.columns: pa.Schema | None = None  # known once opened
        self._is_open = False
        self._credit = ClientCredit()
        self._backlog: deque[AskedKeys | SentWatermark] = deque()
        self._backlog_records = 0
        self._sent = SentLookups()

    def open(self) -> frames.Open:
        """Ask for the channel, for the first time or on a new connection."""
        self.pause()
        again = self._sent.restart()
        self._backlog.extendleft(reversed(again))
        self._backlog_records += sum(_record_count(entry) for entry in again)
        request = self.request
        return frames.Open(
            self.number, request.dimension, request.columns, request.origin, request.key
        )

    def on_opened(self, opened: frames.Opened, *, now_s: float) -> list[Frame]:
        """The channel stands; send what waits.

        Raises InvalidRequest if the columns are others than before, or as `ask` does.
        """
        if self.columns is not None and not self.columns.equals(opened.columns):
            raise InvalidRequest(
                ErrorCode.SCHEMA_CHANGED,
                f"the columns of {self.request.dimension!r} changed while it was looked up",
            )
        self.columns = opened.columns
        self._is_open = True
        self._credit.restart(opened.credit_records, opened.credit_bytes)
        return self._send(now_s)

    def on_credit(self, credit: frames.Credit, *, now_s: float) -> list[Frame]:
        """More may be sent; send what waits. Raises as `ask` does."""
        if not self._is_open:
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
        _check_answer(answer, asked.count)
        if result.is_last:
            self._sent.remove(result.sequence)
        moved = replace(
            answer,
            positions=answer.positions + np.int32(asked.start),
            errors={position + asked.start: code for position, code in answer.errors.items()},
        )
        return ChannelAnswer(asked.question, moved)

    def ask(self, asked: AskedKeys, *, now_s: float) -> list[Frame]:
        """Look these distinct keys up, now or when there is credit.

        Raises InvalidRequest for a key that is larger than all credit; the channel is of no use
        after that.
        """
        self._backlog.append(asked)
        self._backlog_records += asked.count
        return self._send(now_s)

    def mark(self, watermark_ms: int, *, now_s: float) -> list[Frame]:
        """Tell the watermark, behind all that was asked before it."""
        self._backlog.append(SentWatermark(watermark_ms))
        return self._send(now_s)

    def abandon(self, question: QuestionId, *, now_s: float) -> list[Frame]:
        """Nobody waits for this question any more: cancel what was sent, drop what was not."""
        kept = [entry for entry in self._backlog if not _belongs(entry, question)]
        self._backlog = deque(kept)
        self._backlog_records = sum(_record_count(entry) for entry in kept)
        sequences = self._sent.sequences_of(question)
        for sequence in sequences:
            self._sent.remove(sequence)
        cancels: list[Frame] = [frames.Cancel(self.number, sequence) for sequence in sequences]
        return cancels + self._send(now_s)  # what stood behind it may fit the credit

    def close(self) -> list[Frame]:
        """Give the channel back: cancel what is unanswered, drop what waits.

        Nothing is sent on a channel that does not stand: the service would not know it.
        """
        if not self._is_open:
            return []
        cancels = [
            frames.Cancel(self.number, sequence) for sequence in self._sent.unanswered_sequences()
        ]
        self._backlog.clear()
        self._backlog_records = 0
        self._sent.restart()
        self.pause()
        return [*cancels, frames.Close(self.number)]

    def pause(self) -> None:
        """Send nothing more until the channel was opened anew; answers still come."""
        self._is_open = False
        self._credit.restart(0, 0)

    @property
    def is_quiet(self) -> bool:
        """Whether every lookup that was sent has been answered."""
        return not self._sent.record_count

    def statistics(self) -> ChannelStatistics:
        """A snapshot."""
        return ChannelStatistics(
            credit_records=self._credit.records,
            credit_bytes=self._credit.bytes,
            in_flight_records=self._sent.record_count,
            backlog_records=self._backlog_records,
        )

    def check_invariants(self) -> None:
        """For tests: credit is never negative, and the backlog waits for credit only."""
        self._sent.check_invariants()
        assert self._credit.records >= 0
        assert self._credit.bytes >= 0
        assert self._backlog_records == sum(_record_count(entry) for entry in self._backlog)
        assert not self._is_open or not isinstance(next(iter(self._backlog), None), SentWatermark)

    def _send(self, now_s: float) -> list[Frame]:
        sending: list[Frame] = []
        while self._is_open and self._backlog:
            head = self._backlog[0]
            if isinstance(head, SentWatermark):
                self._backlog.popleft()
                self._sent.mark(head)
                sending.append(frames.Watermark(self.number, head.watermark_ms))
                continue
            lookup = self._lookup(head, now_s)
            if lookup is None:
                break
            sending.append(lookup)
        return sending

    def _lookup(self, head: AskedKeys, now_s: float) -> frames.Lookup | None:
        count, payload = self._what_credit_allows(head)
        if not count:
            return None
        part, rest = head.split(count)
        self._backlog.popleft()
        if rest.count:
            self._backlog.appendleft(rest)
        self._backlog_records -= count
        self._credit.spend(count, len(payload))
        return frames.Lookup(
            channel=self.number,
            sequence=self._sent.add(part),
            timeout_ms=_timeout_ms(head.deadline_s, now_s),
            backlog_records=self._backlog_records,
            payload=payload,
        )

    def _what_credit_allows(self, head: AskedKeys) -> tuple[int, memoryview]:
        count = self._credit.records_to_send(head.count)
        payload = memoryview(b"")
        while count:
            payload = encode_batch(head.split(count)[0].keys)
            if len(payload) <= self._credit.bytes:
                break
            count = self._credit.records_within(count, len(payload))
        return count, payload

    def _decoded(self, result: frames.Result) -> Answer:
        assert self.columns is not None  # a sequence was sent, so the channel stood
        schema = result_schema(self.columns) if result.has_rows else ROWLESS
        return answer_from_batch(decode_batch(result.payload, schema), has_rows=result.has_rows)


def _check_answer(answer: Answer, count: int) -> None:
    positions = answer.positions
    is_inside = bool(((positions >= 0) & (positions < count)).all())
    if not is_inside or int(np.bincount(positions, minlength=1).max()) > 1:
        raise ProtocolViolation(
            ErrorCode.BAD_FRAME, f"an answer's positions must be distinct and below {count}"
        )
    expected = _WITH_ROW if answer.rows is not None else _WITHOUT_ROW
    if not expected[answer.outcomes].all():
        raise ProtocolViolation(ErrorCode.BAD_FRAME, "outcomes and rows contradict each other")


def _timeout_ms(deadline_s: float, now_s: float) -> int:
    left_ms = (deadline_s - now_s) * 1000
    return _MAX_TIMEOUT_MS if left_ms > _MAX_TIMEOUT_MS else max(math.ceil(left_ms), 1)


def _record_count(entry: AskedKeys | SentWatermark) -> int:
    return entry.count if isinstance(entry, AskedKeys) else 0


def _belongs(entry: AskedKeys | SentWatermark, question: QuestionId) -> bool:
    return isinstance(entry, AskedKeys) and entry.question == question
