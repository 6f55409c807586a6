"""Server side of `sidelook.v1` on one connection, without I/O.

The caller hands messages to `receive`, carries out the returned effects, and sends what
`message_to_send` returns:

    Describe        describe the dimension; then call `accept` or `refuse`
    StopDescribing  cancel that; a later `accept` is ignored
    Received        begin the span of the lookup
    Submit          look the keys up; hand each answer to `on_answer`
    Leave           drop the lookup's submitted parts
    CountCached     count lookups that the client answered from the shared cache
    Revoke          call `revoke` of that connection

`ChannelRegistry` is shared by all connections. Its `turns` return further parts to submit, and
lookups for `time_out`. `now` is monotonic seconds.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.errors import (
    ErrorCode,
    InvalidRequest,
    ProtocolViolation,
    SidelookError,
    bad_frame,
    of_dimension,
)
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import answer_batch, encode_batch
from lookup_core.protocol.channel_registry import ChannelRegistry
from lookup_core.protocol.frame_codec import MAX_DEFAULT_ROW_BYTES, decode_frame, encode_frame
from lookup_core.protocol.frames import MAX_CHANNELS, Frame
from lookup_core.protocol.server_channel import (
    ChannelSchema,
    LookupPart,
    ServerChannel,
    ServerLookup,
)
from lookup_core.protocol.stream_effects import (
    CountCached,
    Describe,
    Effect,
    Leave,
    Offer,
    Received,
    Revoke,
    StopDescribing,
)

RESULT_ROW_BYTES = 1024 * 1024  # in one frame; encoding it takes 1 to 2 ms
MAX_QUEUED_FRAMES = 1024  # with more, the client's frames are not read
_REMEMBERED_CHANNELS = 1024  # revoked ones, of one connection
_MAX_REASON_CHARACTERS = 2_000
_MAX_ERROR_CHARACTERS = 5_000  # as JSON, each has up to 12 bytes
_NO_ANSWER = rowless_answer(np.zeros(0, np.int32), Outcome.MISSING)  # to a LOOKUP without keys


@dataclass(frozen=True, slots=True)
class _AnswerPiece:
    """The content of one RESULT frame; `held_bytes` are released once it is sent."""

    channel: ServerChannel
    sequence: int
    is_last: bool
    answer: Answer
    held_bytes: int

    def pieces(self) -> Iterator["_AnswerPiece"]:
        """The answer in pieces of at most `RESULT_ROW_BYTES`, unless one row is larger."""
        *pieces, last = self.answer.pieces(RESULT_ROW_BYTES)
        for piece in pieces:
            # All pieces are slices of the same rows, which stay in memory until the last is sent.
            yield replace(self, is_last=False, answer=piece, held_bytes=0)
        yield replace(self, answer=last)


class StreamServer:
    """All state of one connection; after a ProtocolViolation, the caller closes it with 1002."""

    def __init__(self, number: int, registry: ChannelRegistry, *, agent: str) -> None:
        """`number` is unique in the process."""
        self.number = number
        self.is_greeted = False
        self._registry = registry
        self._turns = registry.turns
        self._agent = agent
        self._opening: dict[int, frames.Open] = {}  # {channel: its request}
        self._channels: dict[int, ServerChannel] = {}
        self._revoked: dict[int, None] = {}  # until they are opened again, oldest first
        self._outgoing: deque[Frame | _AnswerPiece] = deque()
        self._sending: Frame | _AnswerPiece | None = None  # returned last by `message_to_send`

    # Receiving

    def receive(self, message: bytes, now: float) -> Sequence[Effect]:
        """Take a message of the client; returns what to do, in this order.

        Raises ProtocolViolation for anything that docs/reference/wire-protocol.md does not allow.
        """
        frame = decode_frame(message)
        if not self.is_greeted:
            self._greet(frame)
            return ()
        effects: Sequence[Effect] = ()
        match frame:
            case frames.Lookup() | frames.Watermark() | frames.Status() if (
                frame.channel in self._revoked
            ):
                pass  # sent before the client read ERROR: it sends it again
            case frames.Lookup():
                effects = self._on_lookup(frame, now)
            case frames.Open():
                effects = self._on_open(frame)
            case frames.Watermark() | frames.Status():
                self._on_event_time(frame, now)
            case frames.Cancel():
                effects = self._on_cancel(frame, now)
            case frames.Close():
                effects = self._on_close(frame)
            case frames.Cached():
                effects = self._on_cached(frame, now)
            case _:
                kind = type(frame).__name__.upper()
                raise bad_frame(f"a client never sends {kind} here")
        return effects

    def accept(self, requested: frames.Open, offer: Offer, now: float) -> Sequence[Effect]:
        """Open a requested channel, or refuse it if the limits or the offer do not allow it."""
        if self._opening.get(requested.channel) is not requested:
            return ()  # closed meanwhile
        try:
            schema = offer.schema
            default = None if offer.default is None else _default_message(offer.default, schema)
            channel, revoked = self._registry.admit(self.number, schema, now)
        except SidelookError as error:
            self.refuse(requested, error)
            return ()
        del self._opening[requested.channel]
        self._channels[requested.channel] = channel
        share = channel.share
        opened = frames.Opened(
            channel=requested.channel,
            credit_records=share.records,
            credit_bytes=share.bytes,
            columns=schema.columns,
            key=schema.key_names,
            versions=schema.versions,
            waits=offer.waits,
            options=requested.options,
            has_all_rows=offer.has_all_rows,
            default=default,
            cache=offer.cache,
        )
        self._outgoing.append(opened)
        return () if revoked is None else (Revoke(revoked.connection, revoked.opened.channel),)

    def refuse(self, requested: frames.Open, error: SidelookError) -> None:
        """Answer a requested channel with ERROR."""
        if self._opening.pop(requested.channel, None) is not None:
            self._fail(requested.channel, error.code, error.detail, is_retryable=error.is_retryable)

    # Answers

    def on_answer(
        self, part: LookupPart, answer: Answer, now: float, *, reasons: Mapping[ErrorCode, str]
    ) -> None:
        """Answer records of a submitted part, whose positions begin at 0.

        `reasons` explain the error codes of the answer, for a channel with `wants_reasons`.
        """
        channel, answer_bytes = part.lookup.channel, answer.total_bytes
        self._turns.change_held(
            self.number,
            channel.id,
            added_bytes=answer_bytes,
            released_bytes=answer.size * part.record_bytes,
        )
        if reasons:
            self._give_reasons(channel, reasons)
        credit = channel.on_answer(part, answer, answer_bytes=answer_bytes, now=now)
        moved = answer.moved(part.start)
        self._answer(part.lookup, moved, held_bytes=answer_bytes, credit=credit)

    def time_out(
        self, lookup: ServerLookup, now: float, *, reasons: Mapping[ErrorCode, str]
    ) -> Answer:
        """Answer the queued records of an overdue lookup with `timeout`; returns the answer."""
        channel, start = lookup.channel, lookup.records - lookup.queued_records
        self._turns.remove(lookup)
        positions = np.arange(start, lookup.records, dtype=np.int32)
        answer = rowless_answer(positions, Outcome.TIMEOUT, error=ErrorCode.TIMEOUT)
        self._turns.change_held(self.number, channel.id, added_bytes=answer.total_bytes)
        self._give_reasons(channel, reasons)
        credit = channel.end_records(lookup, answer.size, now)
        self._answer(lookup, answer, held_bytes=answer.total_bytes, credit=credit)
        return answer

    # Sending

    @property
    def has_messages(self) -> bool:
        """Whether `message_to_send` has a message."""
        return bool(self._outgoing)

    @property
    def is_idle(self) -> bool:
        """Whether all messages were sent."""
        return not self._outgoing and self._sending is None

    @property
    def has_room(self) -> bool:
        """Whether to receive; a client that does not read may not cause more frames."""
        return len(self._outgoing) <= MAX_QUEUED_FRAMES

    def message_to_send(self, now: float) -> bytes | None:
        """The next message for the client; None if there is none.

        Each call says that the message before was sent: so the caller sends it first.
        """
        sent = self._sending
        self._sending = None
        if isinstance(sent, _AnswerPiece):
            released_bytes = sent.held_bytes
            self._turns.change_held(self.number, sent.channel.id, released_bytes=released_bytes)
        if not self._outgoing:
            return None
        match outgoing := self._outgoing.popleft():
            case _AnswerPiece():
                number, answer = outgoing.channel.opened.channel, outgoing.answer
                payload = encode_batch(answer_batch(answer))
                has_rows, is_last = answer.rows is not None, outgoing.is_last
                frame: Frame = frames.Result(number, outgoing.sequence, is_last, has_rows, payload)
            case frames.Credit():
                frame = outgoing
                channel = self._channels[frame.channel]
                channel.on_credit_sent(frame)  # the client may respond while it is still sent
                if channel.is_drained:
                    self._outgoing.append(frames.Closed(frame.channel))
            case frames.Closed():
                frame = outgoing
                closed = self._channels.get(frame.channel)
                if closed is not None and closed.is_drained:
                    self._drop(closed, now)
            case _:
                frame = outgoing
        self._sending = outgoing
        return encode_frame(frame)

    # Ends

    def revoke(self, number: int, now: float) -> None:
        """End a silent channel; its client opens it again when it needs it."""
        self._drop(self._channels[number], now)
        self._revoked[number] = None
        if len(self._revoked) > _REMEMBERED_CHANNELS:
            del self._revoked[next(iter(self._revoked))]
        detail = (
            "the channel was silent, and another one needs its share; open it again for lookups"
        )
        self._fail(number, ErrorCode.OVERLOADED, detail, is_retryable=True)

    def go_away(self, reason: str) -> bool:
        """Send GOAWAY, so that the client opens nothing new; False before HELLO: close instead."""
        if self.is_greeted:
            self._outgoing.append(frames.Goaway(reason))
        return self.is_greeted

    def close(self, now: float) -> Sequence[Effect]:
        """The connection has ended: release credit and bytes; returns the lookups to leave."""
        left = [
            self._leave(lookup)
            for channel in self._channels.values()
            for lookup in list(channel.lookups.values())
        ]
        for channel in list(self._channels.values()):
            self._drop(channel, now)
        self._opening.clear()
        self._outgoing.clear()
        self._sending = None
        self._turns.close_connection(self.number)
        return left

    def check_invariants(self) -> None:
        """For tests: the channels agree with their shared registry."""
        self._registry.check_invariants()
        assert not self._opening.keys() & self._channels.keys()
        assert all(each.connection == self.number for each in self._channels.values())

    # Frames

    def _greet(self, frame: Frame) -> None:
        if not isinstance(frame, frames.Hello):
            raise bad_frame("the first frame must be HELLO")
        if frames.PROTOCOL_VERSION not in frame.versions:
            raise ProtocolViolation(
                ErrorCode.UNSUPPORTED_VERSION,
                f"this service ({self._agent}) speaks {frames.PROTOCOL_VERSION}, "
                f"the client ({frame.agent}) {list(frame.versions)}",
            )
        self.is_greeted = True
        self._outgoing.append(frames.Welcome(frames.PROTOCOL_VERSION, self._agent))

    def _on_open(self, frame: frames.Open) -> Sequence[Effect]:
        number = frame.channel
        if number in self._channels or number in self._opening:
            raise bad_frame(f"channel {number} is already open")
        self._revoked.pop(number, None)
        if len(self._channels) + len(self._opening) < MAX_CHANNELS:
            self._opening[number] = frame
            return (Describe(frame),)
        detail = f"its connection has {MAX_CHANNELS} channels, the limit; use another connection"
        refusal = of_dimension(frame.dimension, detail)
        self._fail(number, ErrorCode.OVERLOADED, refusal, is_retryable=True)
        return ()

    def _on_lookup(self, frame: frames.Lookup, now: float) -> Sequence[Effect]:
        channel = self._channel(frame.channel)
        lookup = channel.on_lookup(frame, now)
        if frame.backlog_records and (lent := channel.lend()) is not None:
            self._outgoing.append(lent)
        if not lookup.records:
            credit = channel.end_records(lookup, 0, now)
            self._answer(lookup, _NO_ANSWER, held_bytes=0, credit=credit)
            return ()
        received, submit = Received(lookup), self._turns.put(lookup)
        return (received,) if submit is None else (received, submit)

    def _on_event_time(self, frame: frames.Watermark | frames.Status, now: float) -> None:
        channel = self._channel(frame.channel)
        if channel.is_closing:
            kind = type(frame).__name__.upper()
            detail = f"{kind} after CLOSE on {frame.channel}"
            raise ProtocolViolation(ErrorCode.UNKNOWN_CHANNEL, detail)
        streams = self._registry.streams_of(channel)
        if isinstance(frame, frames.Watermark):
            streams.on_watermark(channel, frame.watermark_ms, now)
        else:
            streams.on_status(channel, is_idle=frame.is_idle)

    def _on_cancel(self, frame: frames.Cancel, now: float) -> Sequence[Effect]:
        # The channel, or the lookup, may have ended while CANCEL was on its way.
        channel = self._channels.get(frame.channel)
        lookup = None if channel is None else channel.lookups.get(frame.sequence)
        if channel is None or lookup is None:
            return ()
        left = self._leave(lookup, now)
        credit = channel.end_records(lookup, lookup.unanswered, now)
        if credit is not None:
            self._outgoing.append(credit)
        return (left,)

    def _on_close(self, frame: frames.Close) -> Sequence[Effect]:
        number = frame.channel
        if self._opening.pop(number, None) is not None:
            self._outgoing.append(frames.Closed(number))
            return (StopDescribing(number),)
        channel = self._channels.get(number)  # otherwise it has ended, as for CANCEL
        if channel is not None and not channel.is_closing:
            channel.is_closing = True
            if channel.is_drained:
                self._outgoing.append(frames.Closed(number))
        return ()

    def _on_cached(self, frame: frames.Cached, now: float) -> Sequence[Effect]:
        channel = self._channels.get(frame.channel)
        if channel is None:
            return ()
        channel.on_cached(frame, now)
        outcomes = {
            Outcome.HIT: frame.hits,
            Outcome.MISSING: frame.missing,
            Outcome.DEFAULT: frame.defaults,
        }
        visited = np.frombuffer(frame.visited, "<i4")
        return (CountCached(channel.opened.dimension, outcomes, visited),)

    # Parts of the above

    def _answer(
        self, lookup: ServerLookup, answer: Answer, *, held_bytes: int, credit: frames.Credit | None
    ) -> None:
        """Put an answer in order: its pieces, and its credit before the last one.

        Behind the answer, the client would use it for a small lookup with its remaining credit.
        """
        is_last = not lookup.unanswered
        last = _AnswerPiece(lookup.channel, lookup.sequence, is_last, answer, held_bytes)
        if held_bytes > RESULT_ROW_BYTES:
            *pieces, last = last.pieces()
            self._outgoing.extend(pieces)
        if credit is not None:
            self._outgoing.append(credit)
        self._outgoing.append(last)

    def _give_reasons(self, channel: ServerChannel, reasons: Mapping[ErrorCode, str]) -> None:
        for code, reason in reasons.items():
            shown = reason[:_MAX_REASON_CHARACTERS]
            if channel.is_new_reason(code, shown):
                self._outgoing.append(frames.Reason(channel.opened.channel, code, shown))

    def _leave(self, lookup: ServerLookup, now: float | None = None) -> Leave:
        """Drop the records of a lookup; at its deadline, they count as timed out."""
        is_late = now is not None and lookup.is_late(now)
        left = Leave(lookup, tuple(lookup.parts), lookup.unanswered if is_late else 0)
        self._turns.remove(lookup)
        for part in left.parts:
            reserved_bytes = part.unanswered * part.record_bytes
            self._turns.change_held(self.number, lookup.channel.id, released_bytes=reserved_bytes)
        lookup.parts.clear()
        return left

    def _drop(self, channel: ServerChannel, now: float) -> None:
        del self._channels[channel.opened.channel]
        self._registry.remove(channel, now)

    def _fail(self, number: int, code: ErrorCode, detail: str, *, is_retryable: bool) -> None:
        # A detail may quote the request.
        shown = detail[:_MAX_ERROR_CHARACTERS]
        self._outgoing.append(frames.Failure(number, code, shown, is_retryable))

    def _channel(self, number: int) -> ServerChannel:
        if number not in self._channels:
            raise ProtocolViolation(ErrorCode.UNKNOWN_CHANNEL, f"channel {number} is not open")
        return self._channels[number]


def _default_message(default: pa.RecordBatch, schema: ChannelSchema) -> bytes:
    row = bytes(encode_batch(default.select(schema.names)))
    if len(row) > MAX_DEFAULT_ROW_BYTES:
        detail = (
            f"the default row has {len(row)} bytes, at most {MAX_DEFAULT_ROW_BYTES} can be sent"
        )
        raise InvalidRequest(ErrorCode.BAD_REQUEST, f"{detail}; name fewer columns")
    return row
