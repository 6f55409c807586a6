"""The lookups of one open channel: frames to the line, answers to frames.

Keeps the protocol's book (`ServerChannel`) in step with them; when a lookup is carried out is the
line's to say.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from lookup_core.answer import Outcome, rowless_answer
from lookup_core.dimension.batcher import ChannelId
from lookup_core.errors import ErrorCode, ProtocolViolation
from lookup_core.protocol.arrow_payload import decode_batch
from lookup_core.protocol.frames import Closed, Credit, Lookup, Open
from lookup_core.protocol.server_channel import ServerChannel
from service.engine.tracer import CallerSpan
from service.stream.lookup_queue import LookupQueue
from service.stream.outbox import AnswerPiece, Outbox
from service.stream.stream_lookup import Asker, HeldAnswer, RequestedRecords, StreamLookup

_NO_KEYS = HeldAnswer(
    rowless_answer(np.zeros(0, np.int32), Outcome.MISSING), held_bytes=0, is_last=True
)


class ChannelLookups:
    """Carries the lookups of one channel to its dimension and back."""

    def __init__(
        self,
        book: ServerChannel[ChannelId],
        opened: Open,
        *,
        asker: Asker,
        line: LookupQueue,
        outbox: Outbox,
        on_defect: Callable[[Exception], None],
    ) -> None:
        self.book = book
        self._opened = opened
        self._asker = asker
        self._line = line
        self._outbox = outbox
        self._on_defect = on_defect
        self._lookups: dict[int, StreamLookup] = {}  # {sequence: lookup with keys unanswered}

    def on_lookup(self, frame: Lookup) -> None:
        """Check and charge a lookup, and put it in line.

        Raises ProtocolViolation for a payload, sequence or amount that the peer may not send.
        """
        if not len(self._opened.key):
            raise ProtocolViolation(ErrorCode.BAD_FRAME, "LOOKUP on a channel without a key")
        keys = decode_batch(frame.payload, self._opened.key)
        self._put_credit(self.book.on_lookup(frame, keys.num_rows))
        if not keys.num_rows:
            self._deliver(frame.sequence, _NO_KEYS)  # it is answered, too
            return
        deadline_s = self._line.now() + frame.timeout_ms / 1000
        lookup = self._lookups[frame.sequence] = StreamLookup(
            RequestedRecords(
                keys, deadline_s, frame.event_time_ms, self._begun_span(keys.num_rows)
            ),
            self._asker,
            deliver=partial(self._deliver, frame.sequence),
            on_defect=self._on_defect,
        )
        self._line.put(lookup)

    def on_cancel(self, sequence: int) -> None:
        """Leave a lookup; its credit goes back."""
        lookup = self._lookups.pop(sequence, None)
        if lookup is not None:
            self._leave(lookup)
            self._put_credit(self.book.on_ended(sequence))

    def on_close(self) -> None:
        """No more lookups will come; CLOSED follows the last answer. Harmless twice."""
        if not self.book.is_closing:
            self.book.is_closing = True
            self._close_if_drained()

    def on_credit_sent(self) -> None:
        """Credit goes to the peer now, with the last of the answers that it is for."""
        self.book.on_credit_sent()
        self._close_if_drained()

    def abandon(self) -> None:
        """The connection is gone: nobody waits for anything here."""
        for lookup in self._lookups.values():
            self._leave(lookup)
        self._lookups.clear()

    def _begun_span(self, keys: int) -> CallerSpan | None:
        opened = self._opened
        return self._asker.tracer.begin_lookup(opened.dimension, keys=keys, parent=opened.trace)

    def _leave(self, lookup: StreamLookup) -> None:
        self._line.remove(lookup)
        lookup.leave()
        self._line.on_room()

    def _deliver(self, sequence: int, held: HeldAnswer) -> None:
        whole = AnswerPiece(
            self.book.channel, sequence, held.is_last, held.answer, held_bytes=held.held_bytes
        )
        for piece in whole.pieces():
            self._outbox.put(piece)
        if held.is_last:
            self._lookups.pop(sequence, None)
            self._put_credit(self.book.on_ended(sequence))
        self._line.on_room()  # what was held for it may have been more

    def _put_credit(self, credit: Credit | None) -> None:
        if credit is not None:
            self._outbox.put(credit)

    def _close_if_drained(self) -> None:
        if self.book.is_drained:
            self._outbox.put(Closed(self.book.channel))
