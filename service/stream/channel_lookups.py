"""Lookups of one open channel: frames to the lookup queue, answers to the outbox."""

from collections.abc import Callable
from functools import partial

import numpy as np

from lookup_core.answer import Outcome, rowless_answer
from lookup_core.errors import ErrorCode, ProtocolViolation
from lookup_core.protocol.arrow_payload import decode_batch
from lookup_core.protocol.frames import Closed, Credit, Lookup, Open
from service.stream.channel_registry import AdmittedChannel
from service.stream.lookup_queue import LookupQueue
from service.stream.outbox import AnswerPiece, Outbox
from service.stream.stream_lookup import (
    ChannelContext,
    HeldAnswer,
    RequestedRecords,
    StreamLookup,
)

_NO_KEYS = HeldAnswer(
    rowless_answer(np.zeros(0, np.int32), Outcome.MISSING), held_bytes=0, is_last=True
)


class ChannelLookups:
    """Runs the lookups of one channel, and keeps its protocol state in step."""

    def __init__(
        self,
        admitted: AdmittedChannel,
        opened: Open,
        *,
        context: ChannelContext,
        queue: LookupQueue,
        outbox: Outbox,
        on_defect: Callable[[Exception], None],
    ) -> None:
        self.id = admitted.id
        self.state = admitted.state
        self._opened = opened
        self._context = context
        self._queue = queue
        self._outbox = outbox
        self._on_defect = on_defect
        self._lookups: dict[int, StreamLookup] = {}  # {sequence: lookup with unanswered keys}

    def on_lookup(self, frame: Lookup) -> None:
        """Check, charge and queue a lookup.

        Raises ProtocolViolation for an invalid payload or sequence, or for too little credit.
        """
        opened = self._opened
        if not len(opened.key):
            raise ProtocolViolation(ErrorCode.BAD_FRAME, "LOOKUP on a channel without a key")
        keys = decode_batch(frame.payload, opened.key)
        self._put_credit(self.state.on_lookup(frame, keys.num_rows))
        if not keys.num_rows:
            self._deliver(frame.sequence, _NO_KEYS)
            return
        deadline_s = self._queue.now() + frame.timeout_ms / 1000
        span = self._context.tracer.begin_lookup(
            opened.dimension, keys=keys.num_rows, parent=opened.trace
        )
        lookup = self._lookups[frame.sequence] = StreamLookup(
            RequestedRecords(keys, deadline_s, frame.event_time_ms, span),
            self._context,
            deliver=partial(self._deliver, frame.sequence),
            on_defect=self._on_defect,
        )
        self._queue.put(lookup)

    def on_cancel(self, sequence: int) -> None:
        """Abandon a lookup and return its credit; a no-op after its last answer."""
        lookup = self._lookups.pop(sequence, None)
        if lookup is not None:
            self._leave(lookup)
            self._put_credit(self.state.on_ended(sequence))

    def on_close(self) -> None:
        """Accept no more lookups; CLOSED follows the last answer. A second call is a no-op."""
        if not self.state.is_closing:
            self.state.is_closing = True
            self._close_if_drained()

    def on_credit_sent(self) -> None:
        """Credit is being sent; the last one of a closing channel is followed by CLOSED."""
        self.state.on_credit_sent()
        self._close_if_drained()

    def abandon(self) -> None:
        """Abandon all lookups, because the connection is gone."""
        for lookup in self._lookups.values():
            self._leave(lookup)
        self._lookups.clear()

    def _leave(self, lookup: StreamLookup) -> None:
        self._queue.remove(lookup)
        lookup.leave()
        self._queue.on_room()

    def _deliver(self, sequence: int, held: HeldAnswer) -> None:
        whole = AnswerPiece(
            self.state.channel, sequence, held.is_last, held.answer, held_bytes=held.held_bytes
        )
        for piece in whole.pieces():
            self._outbox.put(piece)
        if held.is_last:
            self._lookups.pop(sequence, None)
            self._put_credit(self.state.on_ended(sequence))
        self._queue.on_room()  # the answer may be smaller than what was held for it

    def _put_credit(self, credit: Credit | None) -> None:
        if credit is not None:
            self._outbox.put(credit)

    def _close_if_drained(self) -> None:
        if self.state.is_drained:
            self._outbox.put(Closed(self.state.channel))
