"""Client side of one channel: credit, backlog, sent lookups, and replay on a new connection.

Methods return the frames to send, never one that the service would refuse in the channel's state.
Owns no connection: after `on_lost` and `open`, all unanswered keys are sent again.
"""

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto

import numpy as np
import pyarrow as pa

from lookup_core.answer import Answer, Outcome
from lookup_core.backoff import NEVER, reopening_backoff
from lookup_core.dimension_schema import VersionColumns
from lookup_core.errors import (
    ErrorCode,
    InvalidRequest,
    ProtocolViolation,
    SidelookError,
    bad_frame,
)
from lookup_core.lookup_options import NO_OPTIONS, LookupOptions
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import (
    ROWLESS,
    BatchDecoder,
    answer_from_batch,
    decode_batch,
    encode_batch,
    result_schema,
)
from lookup_core.protocol.backlog import Backlog, ChannelAnswer, ClientCredit
from lookup_core.protocol.frames import ChannelFrame, Frame, TraceParent
from lookup_core.protocol.sent_lookups import RunId, SentKeys, SentLookups, SentWatermark

MAX_TIMEOUT_MS = 2**32 - 1
_ROWLESS = BatchDecoder(ROWLESS)
_WITH_ROW = np.isin(np.arange(256), [outcome for outcome in Outcome if outcome.has_row])
_WITHOUT_ROW = np.isin(np.arange(256), [outcome for outcome in Outcome if not outcome.has_row])


@dataclass(frozen=True, slots=True)
class ChannelRequest:
    """The parameters of OPEN."""

    dimension: str
    columns: tuple[str, ...] | None  # None: all columns of the dimension
    origin: str
    key: pa.Schema
    is_as_of: bool = False  # rows are lists of versions, with their validity columns
    trace: TraceParent | None = None  # the parent span of the lookups
    options: LookupOptions = NO_OPTIONS
    wants_default: bool = False  # OPENED has the default row


@dataclass(frozen=True, slots=True)
class ChannelLevels:
    """Levels of one channel."""

    credit_records: int
    credit_bytes: int
    in_flight_records: int  # sent, without an answer
    backlog_records: int  # waiting for credit


class _State(Enum):
    """What the service knows of the channel on the current connection."""

    FREE = auto()  # nothing: only OPEN may be sent
    OPENING = auto()  # OPEN was sent: no frame may follow before OPENED
    OPEN = auto()  # OPENED was received: any frame may be sent, LOOKUP within the credit
    LEAVING = auto()  # GOAWAY was received: only CANCEL may be sent, answers still arrive


class ClientChannel:
    """Sends within the credit, and keeps keys until they are answered; `now_s` is monotonic."""

    def __init__(
        self,
        number: int,
        request: ChannelRequest,
        *,
        give_up_after_s: float = math.inf,
        is_interactive: bool = False,
    ) -> None:
        """Refusals are retried for `give_up_after_s`.

        With `is_interactive`, only those that heal by themselves are.
        """
        self.number = number
        self.request = request
        self.failure: SidelookError | None = None  # ended the channel; its answers stay
        self.refusal: SidelookError | None = None  # the last one, until OPENED
        self.reopen_at_s: float | None = None  # after a retriable refusal; monotonic
        self._is_revoked = False  # until there is work: meanwhile others need its credit
        self._is_interactive = is_interactive
        self._backoff = reopening_backoff(give_up_after_s)
        self.opened: frames.Opened | None = None  # the last one, which has all of the following
        self.columns = pa.schema([])
        self.key: tuple[str, ...] = ()
        self.versions: VersionColumns | None = None
        self.has_all_rows = False  # columns are lists of the values of all rows of a key
        self.default: pa.RecordBatch | None = None  # one row; without `wants_default` None
        self._row_decoder: BatchDecoder | None = None
        self._state = _State.FREE
        self._is_idle = False  # since `on_silence`
        self._reported_idle = False  # on this connection
        self._credit = ClientCredit()
        self._backlog = Backlog()
        self._sent = SentLookups()
        self._results: deque[frames.Result] = deque()  # to decode; bounded by the credit
        self._answers: list[ChannelAnswer] = []
        self._reasons: dict[str, str] = {}  # {code: detail} of REASON; a sidecar knows few codes

    def open(self) -> frames.Open:
        """Request the channel on a new connection; unanswered keys join the backlog.

        Raises ProtocolViolation for a RESULT of the former connection that does not answer its
        lookup.
        """
        self._decode()  # before the sequences restart at 1
        self.on_lost()
        self._state = _State.OPENING
        self._backlog.put_back(self._sent.restart())
        request = self.request
        return frames.Open(
            channel=self.number,
            dimension=request.dimension,
            columns=request.columns,
            origin=request.origin,
            key=request.key,
            is_as_of=request.is_as_of,
            trace=request.trace,
            options=request.options,
            wants_default=request.wants_default,
            wants_reasons=True,
        )

    def reopen(self) -> list[Frame]:
        """As `open`, unless the channel has failed; a RESULT that it cannot decode fails it."""
        self.reopen_at_s, self._is_revoked = None, False
        if self.failure is None:
            try:
                return [self.open()]
            except ProtocolViolation as violation:  # must not end the other channels
                self.fail(violation)
        return []

    def on_refusal(self, refusal: SidelookError, *, now_s: float, jitter: float) -> None:
        """The service has refused or ended the channel: fail, or set `reopen_at_s`.

        A silent channel that has lost its credit is opened again by `look_up` or `mark`.
        """
        self.on_lost()
        if refusal.is_retryable and self.opened is not None and not self.has_work:
            self._is_revoked = True
            return
        delay_s = NEVER
        if refusal.is_retryable and (not self._is_interactive or refusal.code.heals_by_itself):
            delay_s = self._backoff.on_failure(jitter, now=now_s)
        if delay_s == NEVER:
            self.fail(refusal)
        else:
            self.reopen_at_s, self.refusal = now_s + delay_s, refusal

    def fail(self, failure: SidelookError) -> None:
        """End the channel; a no-op after the first failure."""
        self.on_lost()
        self.failure = self.failure or failure

    def receive(self, frame: ChannelFrame, *, now_s: float) -> list[Frame]:
        """Take a frame of the service; returns the frames to send.

        RESULT is decoded by `pop_answers`. OPENED raises InvalidRequest if the schema or the
        default row changed since the last connection, or if the service does not know the options,
        ProtocolViolation without OPEN.
        """
        match frame:
            case frames.Opened():
                self._on_opened(frame)
            case frames.Credit():
                if self._state is _State.OPEN:
                    self._credit.add(frame.records, frame.bytes)
            case frames.Result():
                self._results.append(frame)
                return []
            case frames.Reason():
                self._reasons[frame.code] = frame.detail
                return []
        return self.resume(now_s=now_s)

    def explanation(self, code: ErrorCode) -> str:
        """Why keys have this code, and the remedy: the sidecar's reason, if it has given one."""
        return self._reasons.get(code, code.explanation)

    @property
    def has_answers(self) -> bool:
        """Whether `pop_answers` returns answers, or raises."""
        return bool(self._answers or self._results)

    def pop_answers(self) -> list[ChannelAnswer]:
        """The answers that have come, each once; `resume` may have frames to send then.

        Raises ProtocolViolation for a RESULT that does not answer its lookup.
        """
        self._decode()
        answers, self._answers = self._answers, []
        return answers

    def add_answers(self, keys: SentKeys, answers: Iterable[Answer]) -> None:
        """Answer keys that the caller has looked up elsewhere."""
        self._answers += [ChannelAnswer(keys.run, keys.placed(answer)) for answer in answers]

    def _on_opened(self, opened: frames.Opened) -> None:
        if self._state is _State.FREE:
            raise bad_frame("OPENED without OPEN")
        if opened.options != self.request.options:
            names = ", ".join(self.request.options.names) or "none"
            raise InvalidRequest(
                ErrorCode.BAD_REQUEST,
                f"the sidecar is too old for options of lookups in {self.request.dimension!r}:"
                f" {names}; upgrade the sidecar, or omit them",
            )
        if self.opened is not None and _description(self.opened) != _description(opened):
            raise InvalidRequest(
                ErrorCode.SCHEMA_CHANGED,
                f"the columns{', or the default row,' if self.request.wants_default else ''} of"
                f" {self.request.dimension!r} changed between two connections",
            )
        if opened.default is not None and self.request.wants_default:
            self.default = _default_row(opened.default, opened.columns)
        self.opened, self.columns, self.key = opened, opened.columns, opened.key
        self.versions, self.has_all_rows = opened.versions, opened.has_all_rows
        self._row_decoder = BatchDecoder(result_schema(opened.columns))
        self._backoff.on_success()
        self.refusal = None
        if self._state is _State.LEAVING:
            return
        self._state = _State.OPEN
        self._reported_idle = False
        self._credit.restart(opened.credit_records, opened.credit_bytes)
        self._answers += self._backlog.refuse_too_large(self._credit.exclusive_bytes)

    def _decode(self) -> None:
        while self._results:
            answer = self._answered(self._results.popleft())
            if answer is not None:
                self._answers.append(answer)

    def _answered(self, result: frames.Result) -> ChannelAnswer | None:
        """The answers in a frame; None if its lookup was answered or abandoned.

        None also if all of its keys are sent once more, because the table changed.
        """
        keys = self._sent.get(result.sequence)
        if keys is None:
            return None
        decoder = _ROWLESS
        if result.has_rows:
            assert self._row_decoder is not None  # a lookup was sent, so the channel was open
            decoder = self._row_decoder
        answer = answer_from_batch(decoder.decode(result.payload), has_rows=result.has_rows)
        expected = _WITH_ROW if result.has_rows else _WITHOUT_ROW
        if np.count_nonzero(expected.take(answer.outcomes)) < answer.size:
            raise bad_frame("outcomes and rows contradict each other")
        self._sent.on_answer(result.sequence, answer.positions, is_last=result.is_last)
        left = self._without_changed(answer, keys)
        if answer.size and not left.size:
            return None
        return ChannelAnswer(keys.run, keys.placed(left))

    def _without_changed(self, answer: Answer, keys: SentKeys) -> Answer:
        """The answer without keys that met a change of the table: they are sent once more.

        If the columns of this channel and its key are the same, the second try succeeds.
        """
        changed = [at for at, code in answer.errors.items() if code is ErrorCode.SCHEMA_CHANGED]
        if not changed or keys.is_second_try:
            return answer
        is_changed = np.isin(np.arange(keys.count), changed)
        self._backlog.add(replace(keys.only(is_changed), is_second_try=True))
        return answer.only(~is_changed[answer.positions])

    def look_up(self, keys: SentKeys, *, now_s: float) -> list[Frame]:
        """Look up distinct keys, now or when there is credit.

        Keys that are too large for the channel are answered by `pop_answers`.
        """
        self._is_idle = False
        if self._state is _State.OPEN:
            self._answers += self._backlog.add_fitting(keys, self._credit.exclusive_bytes)
        else:  # the limit is unknown before OPENED
            self._backlog.add(keys)
        return self.reopen() if self._is_revoked else self.resume(now_s=now_s)

    def mark(self, watermark_ms: int, *, now_s: float) -> list[Frame]:
        """Send a watermark behind all earlier keys."""
        self._is_idle = False
        self._backlog.add(SentWatermark(watermark_ms))
        return self.reopen() if self._is_revoked else self.resume(now_s=now_s)

    def on_silence(self, *, now_s: float) -> list[Frame]:
        """Report the channel idle, behind the backlog, until the next `look_up` or `mark`.

        A no-op if repeated; a new connection gets the report again.
        """
        self._is_idle = True
        return self.resume(now_s=now_s)

    def report_cached(self, cached: frames.Cached) -> list[Frame]:
        """Report lookups that the shared cache answered; they are not counted while closed."""
        return [cached] if self._state is _State.OPEN else []

    def abandon(self, run: RunId, *, now_s: float) -> list[Frame]:
        """Cancel the sent lookups of a run and drop its backlog."""
        self._backlog.drop(run)
        sequences = self._sent.sequences(run)
        for sequence in sequences:
            self._sent.remove(sequence)
        return [*self._cancels(sequences), *self.resume(now_s=now_s)]

    def resume(self, *, now_s: float) -> list[Frame]:
        """The frames to send now: backlog within the credit, and changes of the idle status."""
        if self._state is not _State.OPEN:
            return []
        return [*self._status(), *self._backlog_within_credit(now_s), *self._status()]

    def close(self) -> list[Frame]:
        """Cancel unanswered lookups, drop the backlog, and close the channel if it is open."""
        is_open = self._state is _State.OPEN
        cancels = self._cancels(self._sent.sequences())
        self._backlog.clear()
        self._sent.clear()
        self.on_lost()
        return [*cancels, frames.Close(self.number)] if is_open else []

    def pause(self) -> None:
        """Send only CANCEL until the next `open`, as after GOAWAY; answers still arrive."""
        if self._state is not _State.FREE:
            self._state = _State.LEAVING
        self.reopen_at_s, self._is_revoked = None, False
        self._credit.restart(0, 0)

    def on_lost(self) -> None:
        """Send nothing until the channel is open again; a no-op if repeated.

        Results that were received before are still decoded.
        """
        self._state = _State.FREE
        self._credit.restart(0, 0)

    @property
    def is_quiet(self) -> bool:
        """Whether no answer will arrive on this connection."""
        return self._state is _State.FREE or not self._sent.records

    @property
    def has_work(self) -> bool:
        """Whether keys or watermarks wait to be sent or answered."""
        return bool(self._backlog) or self._sent.records > 0

    def statistics(self) -> ChannelLevels:
        """Levels now."""
        return ChannelLevels(
            credit_records=self._credit.records,
            credit_bytes=self._credit.bytes,
            in_flight_records=self._sent.records,
            backlog_records=self._backlog.records,
        )

    def check_invariants(self) -> None:
        """For tests: credit is never negative, and only keys wait on an open channel."""
        self._sent.check_invariants()
        self._backlog.check_invariants()
        assert min(self._credit.records, self._credit.bytes) >= 0
        if self._state is _State.OPEN and self._backlog:
            assert isinstance(self._backlog.head, SentKeys)
        if self._state is _State.OPENING:
            assert not self._sent.records

    def _cancels(self, sequences: Iterable[int]) -> list[Frame]:
        if self._state not in {_State.OPEN, _State.LEAVING}:
            return []
        return [frames.Cancel(self.number, sequence) for sequence in sequences]

    def _status(self) -> list[Frame]:
        is_idle = self._is_idle and not self._backlog
        if is_idle == self._reported_idle:
            return []
        self._reported_idle = is_idle
        return [frames.Status(self.number, is_idle)]

    def _backlog_within_credit(self, now_s: float) -> list[Frame]:
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
        """The keys of the head that the credit allows; None to wait for more credit."""
        waits = self.opened is not None and self.opened.waits
        count = self._credit.records_to_send(head.count, in_flight=self._sent.records)
        while count:
            keys = head.part(0, count)
            payload = encode_batch(keys.keys)
            if len(payload) <= self._credit.lookup_bytes:
                self._backlog.pop_keys(count)
                self._credit.spend(count, len(payload))
                return frames.Lookup(
                    channel=self.number,
                    sequence=self._sent.add(keys, len(payload)),
                    timeout_ms=_timeout_ms(head.deadline_s, now_s),
                    backlog_records=self._backlog.records,
                    payload=payload,
                    # Only such a service knows the field.
                    event_time_ms=head.event_time_ms if waits else None,
                )
            in_flight = self._sent.payload_bytes
            count = self._credit.records_within(count, len(payload), in_flight=in_flight)
        return None


def _description(opened: frames.Opened) -> tuple[object, ...]:
    return opened.columns, opened.versions, opened.has_all_rows, opened.default


def _default_row(message: bytes, columns: pa.Schema) -> pa.RecordBatch:
    row = decode_batch(message, columns)
    if row.num_columns and row.num_rows != 1:
        raise bad_frame("the default row is not one row")
    return row


def _timeout_ms(deadline_s: float, now_s: float) -> int:
    left_ms = (deadline_s - now_s) * 1000
    return MAX_TIMEOUT_MS if left_ms > MAX_TIMEOUT_MS else max(math.ceil(left_ms), 1)
