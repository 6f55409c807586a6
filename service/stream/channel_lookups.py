"""The lookups of one open channel: frames to the engine, the engine's answers to frames.

Keeps the two books of a channel together: the protocol's (`ServerChannel`) and the engine's ids.
"""

import numpy as np

from lookup_core.answer import Answer, rowless_answer
from lookup_core.dimension.batcher import ChannelId
from lookup_core.dimension.flight_table import LookupId
from lookup_core.errors import BackendError, ErrorCode, Overloaded, ProtocolViolation
from lookup_core.keys.key_casts import typed_keys_from_arrow
from lookup_core.keys.typed_keys import TypedKeys
from lookup_core.outcome import Outcome
from lookup_core.protocol.arrow_payload import answer_batch, decode_batch, encode_batch
from lookup_core.protocol.frames import Closed, Lookup, Open, Result
from lookup_core.protocol.server_channel import ServerChannel
from service.engine.dimension import Dimension, Submitted
from service.stream.outbox import Outbox

_RESULT_BYTES = 8 * 1024 * 1024  # of rows in one RESULT frame; peers bound what they take
_NO_KEYS = rowless_answer(np.zeros(0, np.int32), Outcome.MISSING)


class ChannelLookups:
    """Carries the lookups of one channel to its dimension and back."""

    def __init__(
        self,
        book: ServerChannel,
        opened: Open,
        *,
        dimension: Dimension,
        turn: ChannelId,
        outbox: Outbox,
    ) -> None:
        self.book = book
        self._opened = opened
        self._dimension = dimension
        self._turn = turn
        self._outbox = outbox
        self._lookups: dict[int, LookupId] = {}  # {sequence: lookup that waits}

    def on_lookup(self, frame: Lookup) -> None:
        """Answer what can be answered at once; the rest follows.

        Raises ProtocolViolation for a payload, sequence or amount that the peer may not send.
        """
        if not len(self._opened.key):
            raise ProtocolViolation(ErrorCode.BAD_FRAME, "LOOKUP on a channel without a key")
        batch = decode_batch(frame.payload, self._opened.key)
        self.book.on_lookup(frame, batch.num_rows)
        try:
            submitted = self._submit(frame, typed_keys_from_arrow(batch, self._dimension.schema))
        except (Overloaded, BackendError) as error:
            positions = np.arange(batch.num_rows, dtype=np.int32)
            answer = rowless_answer(positions, Outcome.ERROR, error=error.code)
            self._deliver(frame.sequence, answer, is_last=True)
            return
        if not submitted.is_done:
            self._lookups[frame.sequence] = submitted.lookup_id
        self._deliver_all(frame.sequence, submitted)

    def on_cancel(self, sequence: int) -> None:
        """Leave a lookup; its credit goes back."""
        lookup_id = self._lookups.pop(sequence, None)
        if lookup_id is not None:
            self._dimension.leave(lookup_id)
            self._end(sequence)

    def on_close(self) -> None:
        """No more lookups will come; CLOSED follows the last answer. Harmless twice."""
        if not self.book.is_closing:
            self.book.is_closing = True
            self._close_if_drained()

    def on_credit_sent(self) -> None:
        """Credit goes to the peer now, behind the answers that it is for."""
        self.book.on_credit_sent()
        self._close_if_drained()

    def abandon(self) -> None:
        """The connection is gone: nobody waits for anything here."""
        for sequence in list(self._lookups):
            self._dimension.leave(self._lookups.pop(sequence))

    def _submit(self, frame: Lookup, keys: TypedKeys) -> Submitted:
        def deliver(answer: Answer, is_last: bool) -> None:  # noqa: FBT001 -- the shape of Deliver
            if is_last:
                self._lookups.pop(frame.sequence, None)
            self._deliver(frame.sequence, answer, is_last=is_last)

        return self._dimension.submit(
            keys,
            columns=self._opened.columns,
            channel=self._turn,
            timeout_s=frame.timeout_ms / 1000,
            deliver=deliver,
        )

    def _deliver_all(self, sequence: int, submitted: Submitted) -> None:
        answers = submitted.answers
        if submitted.is_done and not answers:
            answers = [_NO_KEYS]  # a lookup of no keys is answered, too
        for index, answer in enumerate(answers):
            is_last = submitted.is_done and index == len(answers) - 1
            self._deliver(sequence, answer, is_last=is_last)

    def _deliver(self, sequence: int, answer: Answer, *, is_last: bool) -> None:
        *pieces, last = answer.pieces(_RESULT_BYTES)
        for piece in pieces:
            self._put_result(sequence, piece, is_last=False)
        self._put_result(sequence, last, is_last=is_last)
        if is_last:
            self._end(sequence)

    def _put_result(self, sequence: int, answer: Answer, *, is_last: bool) -> None:
        payload = encode_batch(answer_batch(answer))
        has_rows = answer.rows is not None
        self._outbox.put(Result(self.book.channel, sequence, is_last, has_rows, payload))

    def _end(self, sequence: int) -> None:
        credit = self.book.on_ended(sequence)
        assert credit is not None  # a lookup ends once
        self._outbox.put(credit)

    def _close_if_drained(self) -> None:
        if self.book.is_drained:
            self._outbox.put(Closed(self.book.channel))
