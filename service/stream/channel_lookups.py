"""Lookups of one open channel: frames to the lookup queue, answers to the outbox."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from lookup_core.answer import Outcome, rowless_answer
from lookup_core.errors import ErrorCode, bad_frame
from lookup_core.protocol.arrow_payload import BatchDecoder
from lookup_core.protocol.frames import Cached, Closed, Credit, Lookup, Open, Reason
from service.stream.channel_registry import AdmittedChannel
from service.stream.lookup_queue import LookupQueue
from service.stream.outbox import AnswerPiece, Outbox
from service.stream.stream_lookup import ChannelContext, RequestedRecords, StreamLookup

_MAX_REASON_CHARACTERS = 2_000
_NO_ANSWER = rowless_answer(np.zeros(0, np.int32), Outcome.MISSING)  # to a LOOKUP without keys


@dataclass(slots=True, eq=False)
class ChannelLookups:
    """Runs the lookups of one channel, and keeps its protocol state in step."""

    admitted: AdmittedChannel
    opened: Open
    context: ChannelContext
    queue: LookupQueue
    outbox: Outbox
    on_defect: Callable[[Exception], None]
    _lookups: dict[int, StreamLookup] = field(default_factory=dict)  # {sequence: unanswered lookup}
    _reasons: dict[ErrorCode, str] = field(default_factory=dict)  # that were sent last
    _decoder: BatchDecoder = field(init=False)

    def __post_init__(self) -> None:
        """Prepare to decode keys."""
        self._decoder = BatchDecoder(self.opened.key)

    def on_lookup(self, frame: Lookup) -> None:
        """Check, charge and queue a lookup.

        Raises ProtocolViolation for an invalid payload or sequence, or for too little credit.
        """
        opened = self.opened
        if not len(opened.key):
            raise bad_frame("LOOKUP on a channel without a key")
        keys = self._decoder.decode(frame.payload)
        self._put_credit(self.admitted.state.on_lookup(frame, keys.num_rows))
        if not keys.num_rows:
            nothing = AnswerPiece(
                frame.channel, frame.sequence, is_last=True, answer=_NO_ANSWER, held_bytes=0
            )
            self._deliver(nothing)
            return
        self.admitted.state.used_at_s = now_s = self.queue.now()
        timeout_s = frame.timeout_ms / 1000
        span = self.context.tracer.begin_lookup(
            opened.dimension, keys=keys.num_rows, parent=opened.trace
        )
        lookup = self._lookups[frame.sequence] = StreamLookup(
            RequestedRecords(
                keys, now_s + timeout_s, timeout_s, frame.event_time_ms, span, frame.sequence
            ),
            self.context,
            deliver=self._deliver,
            on_defect=self.on_defect,
        )
        self.queue.put(lookup)

    def on_cached(self, frame: Cached) -> None:
        """Count lookups that the shared cache answered."""
        outcomes = {
            Outcome.HIT: frame.hits,
            Outcome.MISSING: frame.missing,
            Outcome.DEFAULT: frame.defaults,
        }
        self.admitted.state.on_cached(sum(outcomes.values()), self.queue.now())
        self.context.dimension.on_cached(outcomes, np.frombuffer(frame.visited, "<i4"))

    def on_cancel(self, sequence: int) -> None:
        """Abandon a lookup and return its credit; a no-op after its last answer."""
        lookup = self._lookups.pop(sequence, None)
        if lookup is not None:
            lookup.count_late(self.queue.now())
            self._leave(lookup)
            self._put_credit(self.admitted.state.on_ended(sequence))

    def on_close(self) -> None:
        """Accept no more lookups; CLOSED follows the last answer. A second call is a no-op."""
        if not self.admitted.state.is_closing:
            self.admitted.state.is_closing = True
            self._close_if_drained()

    def on_credit_sent(self) -> None:
        """Credit is being sent; the last one of a closing channel is followed by CLOSED."""
        self.admitted.state.on_credit_sent()
        self._close_if_drained()

    def abandon(self) -> None:
        """Abandon all lookups, because the connection is gone."""
        for lookup in self._lookups.values():
            self._leave(lookup)
        self._lookups.clear()

    def _leave(self, lookup: StreamLookup) -> None:
        self.queue.remove(lookup)
        lookup.leave()
        self.queue.on_room()

    def _deliver(self, whole: AnswerPiece) -> None:
        if whole.answer.errors and self.opened.wants_reasons:
            self._give_reasons({*whole.answer.errors.values()})
        for piece in whole.pieces():
            self.outbox.put(piece)
        state, sequence = self.admitted.state, whole.sequence
        if whole.is_last:
            self._lookups.pop(sequence, None)
            state.used_at_s = self.queue.now()
            self._put_credit(state.on_ended(sequence))
        else:
            self._put_credit(state.on_answered(sequence, whole.answer.size))
        self.queue.on_room()  # the answer may be smaller than what was held for it

    def _give_reasons(self, codes: Iterable[ErrorCode]) -> None:
        for code in codes:
            reason = self.context.dimension.explanation(code)[:_MAX_REASON_CHARACTERS]
            if self._reasons.get(code, code.explanation) != reason:
                self._reasons[code] = reason
                self.outbox.put(Reason(self.opened.channel, code, reason))

    def _put_credit(self, credit: Credit | None) -> None:
        if credit is not None:
            self.outbox.put(credit)

    def _close_if_drained(self) -> None:
        if self.admitted.state.is_drained:
            self.outbox.put(Closed(self.admitted.state.channel))
