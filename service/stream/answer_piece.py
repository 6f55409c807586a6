"""Some of an answer on its way to a peer: a RESULT frame that is not encoded yet.

Encoded when it is sent, and not before: otherwise its rows would be held twice while they wait.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from lookup_core.answer import Answer
from lookup_core.protocol.arrow_payload import answer_batch, encode_batch
from lookup_core.protocol.frames import Result

PIECE_BYTES = 1024 * 1024  # of rows in one RESULT: to encode it takes a millisecond or two


@dataclass(frozen=True, slots=True)
class AnswerPiece:
    """What becomes one RESULT; `held_bytes` are free when it was sent."""

    channel: int
    sequence: int
    is_last: bool  # of its lookup
    answer: Answer
    held_bytes: int

    def frame(self) -> Result:
        """The frame, with a copy of the rows."""
        payload = encode_batch(answer_batch(self.answer))
        has_rows = self.answer.rows is not None
        return Result(self.channel, self.sequence, self.is_last, has_rows, payload)

    def pieces(self) -> Iterator["AnswerPiece"]:
        """The same in frames of a size that peers take and that are sent soon."""
        if self.held_bytes <= PIECE_BYTES:
            yield self
            return
        *pieces, last = self.answer.pieces(PIECE_BYTES)
        for piece in pieces:
            # They are slices of the same rows, which are all held until the last of them is gone.
            yield replace(self, is_last=False, answer=piece, held_bytes=0)
        yield replace(self, answer=last)
